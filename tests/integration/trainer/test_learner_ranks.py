"""The whole step (passes before it, policy, critic, reference, whitening over the batch) on several ranks."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from headrace.services.trainer.distributed.collectives import Ranks
from tests.integration.trainer.learner_rank import two_steps
from tests.unit.services.trainer.builders import tiny_folder
from tests.unit.services.trainer.discriminator.test_discriminator import write_tokenizer

pytestmark = pytest.mark.timeout(400)
SHARED = (
    *("loss", "value_loss", "kl", "entropy", "grad_norm", "critic_grad_norm", "mismatch_ess"),
    *("discriminator_loss", "discriminator_grad_norm", "model_flops", "trained_tokens"),
)


@pytest.mark.parametrize("context", ["1", "2"])
def test_ppo_with_critic_and_reference_is_the_same_on_one_device_and_on_ranks(tmp_path, context):
    write_tokenizer(tiny_folder(tmp_path / "model", layers=2))
    expected_metrics, expected = two_steps(tmp_path, Ranks.alone(), backend="single", algorithm="ppo")
    words = (str(tmp_path), "2", "fsdp2", "ppo", context)
    command = [sys.executable, "-m", "tests.integration.trainer.learner_rank", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    metrics = json.loads((tmp_path / "fsdp2.json").read_text())
    for step, (found, one) in enumerate(zip(metrics, expected_metrics, strict=True)):
        assert found.keys() == one.keys()
        for name in SHARED:
            # AdamW's first steps have the size of the learning rate whatever the gradient: tiny differences grow.
            assert found[name] == pytest.approx(one[name], rel=1e-4 if step == 0 else 1e-2, abs=1e-5), (step, name)
    # The last rank alone took 400 MiB for a while between the two steps; this is what the first one tells.
    peaks = [found["peak_host_memory_bytes"] for found in metrics]
    assert peaks[1] > peaks[0] + (200 << 20)
    tensors = load_file(tmp_path / "fsdp2.safetensors")
    assert tensors.keys() == expected.keys()
    for name, value in tensors.items():
        if "-optimizer/" not in name:
            torch.testing.assert_close(value, expected[name], rtol=1e-3, atol=2e-4)
    published = load_file(tmp_path / "fsdp2" / "discriminator" / "version-000002" / "model.safetensors")
    for name, value in published.items():
        assert torch.equal(value, tensors[f"discriminator/{name}"])
