"""What doctor says of a config's memory: each GPU and the host, whether it fits, and changes that make it fit."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.config.resolve import Resolved, resolve
from headrace.config.schema import RunFile
from headrace.doctor import sizes
from headrace.doctor.findings import Finding, Level
from headrace.doctor.memory_finding import judge, remedies, training_of
from headrace.doctor.memory_plan import GB, Training, trainer_gpu
from tests.unit.headrace.doctor.test_memory_plan import EIGHT, llama

SMALL = llama(
    hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    vocab_size=151936, tie_word_embeddings=True,
)  # fmt: skip
CUDA = '[run]\ndevice = "cuda"\n'
BF16 = 'dtype = "bfloat16"\n'
SGLANG = '[rollout]\nengine = "sglang"\ncontext_length = 4096\n[rollout.sglang]\nbase_gpu_id = 1\n'


def resolved(folder: Path, text: str, model: str = BF16) -> Resolved:
    file = folder / "run.toml"
    file.write_text(
        f'[model]\npath = "model"\n{model}[data]\npath = "rows.jsonl"\n{text}[[reward.scorers]]\nname = "math"\n'
    )
    return resolve(file)


def found(folder: Path, text: str, shape: sizes.ModelShape, gpus: list[int], host: int = 500) -> Finding:
    return judge(resolved(folder, text), shape, gpus=[size * GB for size in gpus], host=host * GB)


def test_memory_that_fits_is_reported_for_each_gpu_and_the_host(tmp_path: Path) -> None:
    said = found(tmp_path, CUDA + SGLANG, SMALL, [80, 80])
    assert said.level is Level.OK
    lines = said.said.splitlines()
    assert re.match(r"GPU 0: \d+\.\d of 80\.0 GB, fits: trainer weights 2\.0, .*optimizer 4\.0", lines[0])
    assert re.match(r"GPU 1: \d+\.\d of 80\.0 GB, fits: engine weights 1\.0", lines[1])
    assert re.match(r"host: \d+\.\d of 500\.0 GB, fits: processes 2\.0, snapshots 2\.\d", lines[2])
    assert "an estimate (within 3% in four steps on an H200)" in lines[-1]


def test_memory_that_cannot_fit_fails_and_memory_that_may_not_fit_warns(tmp_path: Path) -> None:
    never = found(tmp_path, CUDA + SGLANG, EIGHT, [80, 80])
    assert never.level is Level.FAIL and "GPU 0: " in never.said and "DOES NOT FIT" in never.said
    perhaps = found(tmp_path, CUDA + SGLANG, EIGHT, [200, 80])
    assert perhaps.level is Level.WARN and perhaps.fix.startswith("one of: trainer.gradient_checkpointing = true; ")
    small_host = found(tmp_path, CUDA + SGLANG, EIGHT, [250, 80], host=100)
    assert small_host.level is Level.WARN and "host: 130.6 of 100.0 GB, DOES NOT FIT" in small_host.said
    assert found(tmp_path, CUDA + SGLANG, EIGHT, [250, 80], host=200).level is Level.OK


def test_every_named_remedy_is_a_key_and_makes_the_run_fit(tmp_path: Path) -> None:
    said = found(tmp_path, CUDA + SGLANG, EIGHT, [130, 80])
    how = training_of(resolved(tmp_path, CUDA + SGLANG).config, EIGHT)
    named = said.fix.partition(": ")[2].split("; ")
    changes = dict(remedies(how))
    assert said.fix.startswith("one of: ") and named == ["model.lora.rank = 16"]
    assert trainer_gpu(EIGHT, replace(how, **changes[named[0]])).total <= 130 * GB < trainer_gpu(EIGHT, how).total
    together = found(tmp_path, CUDA + SGLANG, EIGHT, [70, 80]).fix
    assert together == "together: trainer.gradient_checkpointing = true; model.lora.rank = 16"
    assert "smaller model" in found(tmp_path, CUDA + SGLANG, EIGHT, [4, 80]).fix


def test_a_row_longer_than_a_micro_batch_is_counted_and_divided_over_ranks(tmp_path: Path) -> None:
    long = SGLANG.replace("4096", "131072")
    said = found(tmp_path, CUDA + long + "[trainer]\nranks = 8\ngradient_checkpointing = true\n", EIGHT, [80] * 9)
    assert said.level is Level.WARN and said.fix == "one of: trainer.cp = 8"
    shared = "[trainer]\nranks = 8\ncp = 8\ngradient_checkpointing = true\n"
    assert found(tmp_path, CUDA + long + shared, EIGHT, [80] * 9).level is Level.OK
    how = training_of(resolved(tmp_path, CUDA + long + shared).config, EIGHT)
    assert how.tokens == 131072 // 8
    pairs = CUDA.replace("[run]", '[run]\nstage = "dpo"') + "[dpo]\nmax_tokens = 20000\n"
    assert training_of(resolved(tmp_path, pairs).config, EIGHT).tokens == 40000


@pytest.mark.parametrize("how", [Training(dtype_bytes=4), Training(backend="fsdp2", ranks=2, row_tokens=9999)])
def test_every_key_of_a_remedy_exists(how: Training) -> None:
    for text, _ in [*remedies(how), *remedies(how, "sft")]:
        table: Any = RunFile
        for name in text.partition(" = ")[0].split("."):
            assert name in table.model_fields, text
            table = table.model_fields[name].annotation


def test_the_memory_plan_counts_ranks_critic_and_reference_of_the_config(tmp_path: Path) -> None:
    text = (
        CUDA + "[trainer]\nranks = 4\nnodes = 2\nbucket_mib = 64\ngradient_checkpointing = true\n"
        '[algorithm]\nname = "ppo"\nkl_coef = 0.1\n'
    )
    how = training_of(resolved(tmp_path, text).config, EIGHT)
    assert (how.backend, how.ranks, how.here, how.checkpointing, how.bucket) == ("fsdp2", 4, 2, True, 64 << 20)
    (critic,) = how.values
    assert critic.parameters == EIGHT.parameters - EIGHT.head + EIGHT.hidden and how.reference
    sft = '[run]\ndevice = "cuda"\nstage = "sft"\n[sft]\nmicro_batch_tokens = 1000\n'
    offline = training_of(resolved(tmp_path, sft).config, EIGHT)
    assert offline.micro_batch_tokens == 1000 and not offline.values and not offline.nccl_links
