"""FSDP2 on two real ranks: models are loaded by shards, bit-equal to `from_pretrained`, in less than a whole one."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.families import tiny_family
from tests.integration.trainer.loading_rank import CASES
from tests.unit.services.trainer.builders import tiny_classifier, tiny_model
from tests.unit.services.trainer.families import family

pytestmark = pytest.mark.timeout(400)
WORLD_S = 300
"""A quiet machine takes 20 s."""


def run_world(folder, names, size=2):
    command = [sys.executable, "-m", "tests.integration.trainer.loading_rank", str(folder), str(size), names]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORLD_S)
    return done.returncode, done.stdout + done.stderr


def with_head(folder, model, head):
    """A checkpoint that has a tied head, too."""
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in tensors
    save_file(tensors | {"lm_head.weight": head}, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny_model(layers=3).bfloat16().save_pretrained(folder / "tied-bfloat16")
    tiny_model(tied=False, layers=2).half().save_pretrained(folder / "untied-float16", max_shard_size="4KB")
    assert (folder / "untied-float16" / "model.safetensors.index.json").is_file()
    tied = tiny_model()
    with_head(folder / "tied-twice", tied, tied.lm_head.weight.detach().clone())
    with_head(
        folder / "tied-unlike", tied, torch.linspace(-1, 1, tied.lm_head.weight.numel()).view_as(tied.lm_head.weight)
    )
    for kind in ("qwen3_moe", "deepseek_v3"):
        tiny_family(kind).save_pretrained(folder / kind)
    for kind in ("gemma", "gpt2", "cohere"):
        family(kind).save_pretrained(folder / kind)
    model = tiny_classifier()
    with torch.no_grad():
        model.score.weight.copy_(torch.linspace(-1, 1, 16)[None])
    model.save_pretrained(folder / "classifier")
    return folder


@pytest.fixture(scope="module")
def world(models):
    code, said = run_world(models, json.dumps(list(CASES)))
    return models, code, said


@pytest.mark.parametrize("case", CASES)
def test_sharded_loading_equals_from_pretrained(world, case):
    folder, _, said = world
    assert all((folder / f"{case} {rank}").exists() for rank in range(2)), said[-6000:]


def test_all_ranks_exit_cleanly(world):
    _, code, said = world
    assert code == 0, said[-6000:]
