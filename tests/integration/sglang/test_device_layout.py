"""The checksums that a GPU server must have, against the parameters of SGLang's own models."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headrace.services.rollout.engines.sglang.process import free_port
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.checksums import DEVICE_FAMILIES, engine_checksums
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.wire.lifecycle import die_with_parent
from headrace.wire.weights import snapshot_groups, tensors_of
from tests.families import tiny_family
from tests.sglang import ROOT, sglang_venv
from tests.sglang_hash import sglang_gpu_hash

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]

RANKS = (1, 2, 4)
SUFFIX = {1: "", 2: "/2", 4: "/4"}
ODD = {"vocab_size": 101, "intermediate_size": 40}
"""Sizes that a CPU pads and, but for the vocabulary, a GPU does not."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Family -> SGLang's class, hashes of what its model holds, and what the trainer says that they are."""
    venv, folder = sglang_venv(), tmp_path_factory.mktemp("layout")
    jobs, expected = {}, {}
    for kind in sorted(DEVICE_FAMILIES):
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
        config = json.loads((own / "config.json").read_text())
        expected[kind] = {
            ranks: {
                experts: engine_checksums(sent.items(), f"sglang-device{experts}{SUFFIX[ranks]}", config)
                for experts in ("", "+experts")
            }
            for ranks in RANKS
        }
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
        result |= {"held": {ranks: _held(folder / f"{kind}-published", ranks) for ranks in RANKS}}
        result |= {"expected": expected[kind]}
    return results


def _held(folder: Path, ranks: int) -> dict[str, str]:
    """Hashes of what the ranks hold, by name as an engine tells them."""
    found: dict[str, str] = {}
    for rank in range(ranks):
        file = folder / f"state-{ranks}-{rank}.safetensors"
        for name, each in (load_file(file) if file.exists() else {}).items():
            found[name if ranks == 1 else f"{rank}/{name}"] = sglang_gpu_hash(each)
    return found


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kind", sorted(DEVICE_FAMILIES))
def test_the_trainer_knows_what_every_parameter_on_a_gpu_hashes_to(
    found: dict[str, Any], kind: str, ranks: int
) -> None:
    """Each of two ranks has a head of keys and values of its own; of four, two share one."""
    result = found[kind]
    assert "class" in result, result.get("error")
    held, expected = result["held"][ranks], result["expected"][ranks]
    experts = {name for name in held if ".experts." in name}
    assert bool(experts) == kind.endswith("_moe") and len(held) > 10 * ranks
    assert expected["+experts"] == held
    assert expected[""] == {name: value for name, value in held.items() if name not in experts}
