"""The checksums that a GPU server must have, against the parameters of SGLang's own models."""

import json
import os
import subprocess
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.rollout.engines.sglang.process import free_port
from services.trainer.backends.single import SingleDevice
from services.trainer.model import Policy
from services.trainer.publication.checksums import DEVICE_FAMILIES, engine_checksums
from services.trainer.publication.outgoing import weight_groups
from tests.families import tiny_family
from tests.sglang import ROOT, sglang_venv
from tests.sglang_hash import sglang_gpu_hash
from wire.lifecycle import die_with_parent
from wire.weights import snapshot_groups, tensors_of

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]

ODD = {"vocab_size": 101, "intermediate_size": 40}
"""Sizes that a CPU pads and, but for the vocabulary, a GPU does not."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Family -> SGLang's class, hashes of what its model holds, and what the trainer says that they are."""
    venv, folder = sglang_venv(), tmp_path_factory.mktemp("layout")
    jobs, expected = {}, {}
    for kind in DEVICE_FAMILIES:
        model = tiny_family(kind, **ODD)
        own, other = folder / kind, folder / f"{kind}-published"
        model.save_pretrained(own)
        other.mkdir()
        backend = SingleDevice(Policy(model, forward_dtype=torch.float32))
        snapshot = snapshot_groups(weight_groups(backend, torch.float32), bucket_bytes=4096)
        sent = dict(tensors_of(snapshot.plan, snapshot.buckets))
        save_file({name: each.clone() for name, each in sent.items()}, other / "published.safetensors")
        calls = [[spec.name for spec in bucket.tensors] for bucket in snapshot.plan.buckets]
        (other / "buckets.json").write_text(json.dumps(calls))
        jobs[kind] = [str(own), str(other)]
        expected[kind] = engine_checksums(sent.items(), "sglang-device", kind)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = ROOT / "tests" / "integration" / "sglang" / "device_layout.py"
    done = subprocess.run(
        [venv / "bin" / "python", script, folder / "jobs.json", folder / "results.json", str(free_port("127.0.0.1"))],
        env=os.environ
        | {"PYTHONPATH": str(ROOT / "deploy" / "sglang-cpu" / "shims"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        | {"GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=die_with_parent,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    for kind, result in results.items():
        file = folder / f"{kind}-published" / "state.safetensors"
        held = load_file(file) if file.exists() else {}
        result |= {"held": {name: sglang_gpu_hash(each) for name, each in held.items()}, "expected": expected[kind]}
    return results


@pytest.mark.parametrize("kind", DEVICE_FAMILIES)
def test_the_trainer_knows_what_every_parameter_on_a_gpu_hashes_to(found: dict[str, Any], kind: str) -> None:
    result = found[kind]
    assert "class" in result, result.get("error")
    experts = {name for name in result["held"] if ".experts." in name}
    assert bool(experts) == kind.endswith("_moe") and len(result["held"]) > 10
    assert result["expected"] == {name: value for name, value in result["held"].items() if name not in experts}
