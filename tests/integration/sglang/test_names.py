"""What the trainer publishes, by the names and rules of SGLang's own models."""

import json
import os
import subprocess
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from headrace.services.rollout.engines.sglang.process import free_port
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.weights import snapshot_groups, tensors_of
from tests.families import tiny_family
from tests.sglang import ROOT, sglang_venv

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400)]

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}
YARN |= {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
CHANGES: dict[str, dict[str, Any]] = {
    # On a CPU SGLang knows DeepSeek's rotary positions with yarn only.
    "deepseek_v3": {"rope_parameters": YARN},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
}
CONFIG: dict[str, dict[str, Any]] = {
    # What SGLang's own config classes want, checkpoints have, and transformers no longer writes.
    "deepseek_v3": {"moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    "qwen3_next": {"full_attention_interval": 2},
}
AS_IN_MEMORY = {"gpt_oss"}
CLASSES = {
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}


def numbered(kind: str) -> Any:
    """A tiny model, every element of which is another number that float32 can tell apart."""
    model, start = tiny_family(kind, **CHANGES.get(kind, {})), 1
    for each in dict.fromkeys(model.state_dict(keep_vars=True).values()):
        numbers = torch.arange(start, start + each.numel(), dtype=torch.float32)
        each.data.copy_(numbers.view(each.shape))
        start += each.numel()
    assert start < 2**24
    return model


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What SGLang made of each family."""
    venv, folder = sglang_venv(), tmp_path_factory.mktemp("names")
    jobs, expected = {}, {}
    for kind in CLASSES:
        model = numbered(kind)
        own, other = folder / kind, folder / f"{kind}-published"
        model.save_pretrained(own)
        config = json.loads((own / "config.json").read_text())
        (own / "config.json").write_text(json.dumps(config | CONFIG.get(kind, {})))
        other.mkdir()
        backend = SingleDevice(Policy(model, forward_dtype=torch.float32))
        snapshot = snapshot_groups(weight_groups(backend, torch.float32), bucket_bytes=4096)
        sent = dict(tensors_of(snapshot.plan, snapshot.buckets))
        assert (sent.keys() <= dict(model.named_parameters()).keys()) == (kind in AS_IN_MEMORY)
        save_file({name: each.clone() for name, each in sent.items()}, other / "published.safetensors")
        calls = [[spec.name for spec in bucket.tensors] for bucket in snapshot.plan.buckets]
        assert len(calls) > 5
        (other / "buckets.json").write_text(json.dumps(calls))
        jobs[kind] = [str(own), str(other)]
        expected[kind] = engine_checksums(sent.items(), "sglang-sha256")
    (folder / "jobs.json").write_text(json.dumps(jobs))
    script = ROOT / "tests" / "integration" / "sglang" / "load_weights.py"
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
    return {kind: result | {"expected": expected[kind]} for kind, result in results.items()}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_published_tensor_reaches_the_parameters_of_sglangs_model(found: dict[str, Any], kind: str) -> None:
    result = found[kind]
    assert result.get("class") == CLASSES[kind], result.get("error")
    assert result["unset"] == [] and result["other"] == [] and result["lost"] == []


@pytest.mark.parametrize("kind", CLASSES)
def test_a_published_tensor_that_is_left_out_is_seen(found: dict[str, Any], kind: str) -> None:
    assert found[kind].get("unnoticed", [kind]) == []


@pytest.mark.parametrize("kind", ["deepseek_v3", "mixtral", "qwen2_moe", "qwen3_moe"])
def test_the_trainer_knows_the_checksum_of_every_parameter(found: dict[str, Any], kind: str) -> None:
    """Whatever does not arrive is found by it on a CPU, one replica or many."""
    result = found[kind]
    assert result["expected"] == result["checksums"]
