"""Each check tells what is wrong and what to do; what the config does not ask for is no failure."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from headrace.config.resolve import Resolved, resolve
from headrace.demo.arithmetic import CHARACTERS
from headrace.doctor import config_checks, gpu, machine, network, software
from headrace.doctor.findings import Finding, Level
from headrace.doctor.wants import Wants
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.process.environment import inherited
from tests.valkey import Valkey

SMALL = Shape(hidden=16, intermediate=32, layers=1, heads=2, kv_heads=1, head_dim=8, context=32)


def config(folder: Path, text: str = "", *arguments: str) -> Resolved:
    file = folder / "run.toml"
    file.write_text('[model]\npath = "model"\n[data]\npath = "rows.jsonl"\n' + text)
    return resolve(file, arguments=arguments)


def wants(folder: Path, text: str = "") -> Wants:
    return Wants.of(config(folder, text))


def bad(found: Finding, level: Level = Level.FAIL) -> str:
    """What a bad finding says; it must say what to do."""
    assert found.level is level, found
    assert found.fix
    return found.said


def test_without_a_config_a_machine_without_a_gpu_is_in_order() -> None:
    plain = Wants()
    found = [machine.memory(plain), machine.shared_memory(plain), machine.limits(plain), software.interpreter()]
    assert all(one.level in (Level.OK, Level.WARN) for one in found)


def test_the_needs_of_a_config_are_derived_from_it(tmp_path: Path) -> None:
    assert wants(tmp_path, '[[reward.scorers]]\nname = "code"\n').sandbox
    assert not wants(tmp_path, '[[reward.scorers]]\nname = "code"\noptions = { url = "http://x" }\n').sandbox
    assert not wants(tmp_path, '[[reward.scorers]]\nname = "math"\n').sandbox
    gpus = '[run]\ndevice = "cuda"\n[rollout]\nengine = "sglang"\nreplicas = 2\n[rollout.sglang]\ntp = 2\n'
    asked = wants(tmp_path, gpus + '[[reward.scorers]]\nname = "math"\n')
    assert (asked.cuda, asked.gpus, asked.sglang) == (True, 1 + 2 * 2, True)
    stage = wants(tmp_path, gpus.replace("[run]", '[run]\nstage = "sft"'))
    assert (stage.gpus, stage.sglang, stage.broker, stage.sandbox) == (1, False, False, ())
    assert network.broker(stage, {}).level is Level.NOTE


def test_a_missing_bubblewrap_is_told_with_what_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, tools = '[[reward.scorers]]\nname = "math"\n', '[environment]\ntools = ["m:f"]\n'
    monkeypatch.setattr(software, "find_bubblewrap", lambda: "")
    monkeypatch.setattr(software, "ask_child", lambda *_: {"error": "there is no bwrap. Install it"})
    needed = bad(software.sandbox(wants(tmp_path, scorer + tools), {}))
    assert needed == "there is no bwrap (environments without the network need it)"
    assert "nothing of this config needs it" in bad(software.sandbox(wants(tmp_path, scorer), {}), Level.WARN)


def test_the_doctor_reports_a_config_that_no_machine_can_run(tmp_path: Path) -> None:
    cuda = '[run]\ndevice = "cuda"\n[rollout]\nengine = "sglang"\n'
    assert "no float32 kernels" in bad(config_checks.keys(config(tmp_path, cuda, "--model.dtype", "float32")))
    same = config(tmp_path, cuda, "--model.dtype", "bfloat16", "--rollout.sglang.base-gpu-id", "0")
    assert "on GPU 0 each would take most of the memory" in bad(config_checks.keys(same))
    good = config_checks.keys(config(tmp_path, cuda, "--model.dtype", "bfloat16"))
    assert good.said == "bfloat16; trainer on GPU 0, SGLang on GPU 1"


def smi(folder: Path, body: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_the_doctor_reports_nvidia_smis_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    smi(tmp_path, 'echo "NVIDIA H200, 575.1, 143771 MiB"; echo "NVIDIA H200, 575.1, 143771 MiB"')
    assert gpu.driver(Wants(cuda=True, gpus=2), {}).said == "2 x NVIDIA H200, 575.1, 143771 MiB"
    assert "2 GPUs, but the config wants more" in bad(gpu.driver(Wants(cuda=True, gpus=4), {}))
    assert "1 GPUs, but" in bad(gpu.driver(Wants(cuda=True, gpus=2), {"CUDA_VISIBLE_DEVICES": "1"}))
    smi(tmp_path, "for _ in 1 2 3 4 5 6 7 8; do echo H200; done")
    cuda = ("--run.device", "cuda", "--rollout.engine", "sglang")
    idle = gpu.driver(Wants.of(config(tmp_path, "", *cuda)), {})
    assert "6 of them are idle" in bad(idle, Level.WARN) and "trainer.ranks = 4 and rollout.replicas = 4" in idle.fix
    split = ("--trainer.ranks", "4", "--rollout.replicas", "2", "--rollout.sglang.tp", "2")
    assert gpu.driver(Wants.of(config(tmp_path, "", *cuda, *split)), {}).level is Level.OK
    smi(tmp_path, 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18')
    assert "version mismatch" in bad(gpu.driver(Wants(), {}))


def device(free: int = 90, **more: Any) -> dict[str, Any]:
    one = {"name": "H200", "capability": "9.0", "free": free << 30, "total": 140 << 30}
    return {"version": "2.13.0", "cuda": "13.0", "devices": [one], "nccl": "2.28.9", "nccl_error": "",
            "gloo_error": "", **more}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "level", "words"),
    [
        (device(), Level.OK, "NCCL 2.28.9 and gloo work"),
        (device(nccl_error="unhandled system error"), Level.FAIL, "NCCL 2.28.9: unhandled system error"),
        (device(gloo_error="no address"), Level.FAIL, "gloo: no address"),
        (device(free=3), Level.WARN, "more than half of GPU 0 is in use"),
        (device(devices=[]), Level.FAIL, "torch sees no GPU"),
        ("ImportError: libcudart", Level.FAIL, "torch cannot be used: ImportError: libcudart"),
    ],
)
def test_the_doctor_grades_torchs_report(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, Any] | str, level: Level, words: str
) -> None:
    monkeypatch.setattr(gpu, "_probe", lambda _: told)
    found = gpu.torch(Wants(cuda=True), {})
    assert found.level is level and words in found.said, found
    assert found.fix or level is Level.OK


def test_the_doctor_grades_the_broker(tmp_path: Path, valkey: Valkey) -> None:
    scorer = '[[reward.scorers]]\nname = "math"\n'
    assert network.broker(Wants(), inherited()).level is Level.OK
    there = wants(tmp_path, f'{scorer}[broker]\nurl = "{valkey.url}"\n')
    assert network.broker(there, {}).level in (Level.OK, Level.WARN)
    nobody = wants(tmp_path, f'{scorer}[broker]\nurl = "redis://user:secret@127.0.0.1:1/0"\n')
    said = bad(network.broker(nobody, {}))
    assert "redis://127.0.0.1:1/0" in said and "secret" not in said
    assert "use valkey 7.2 or newer" in network._judge("valkey", "7.0.3", "x").fix
    assert network._judge("redis", "8.0.1", "x").level is Level.OK


def test_the_doctor_reports_a_broker_that_evicts_or_does_not_persist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def facts(*_: object, **__: object) -> Any:
        return network.ServerFacts(kind="redis", version="7.4.0", eviction=policy, persistent=False, cluster=False)

    monkeypatch.setattr(network, "server_facts", facts)
    asked = wants(tmp_path, '[[reward.scorers]]\nname = "math"\n[broker]\nurl = "redis://h:1/0"\n')
    policy = "allkeys-lru"
    assert "maxmemory-policy is allkeys-lru" in bad(network.broker(asked, {}))
    policy = "noeviction"
    assert "keeps nothing on disk" in bad(network.broker(asked, {}), Level.WARN)


def test_the_doctor_checks_the_configs_model_and_data(tmp_path: Path) -> None:
    asked = config(tmp_path, '[[reward.scorers]]\nname = "math"\n')
    assert "does not exist" in bad(config_checks.model(asked))
    assert "there is no file" in bad(config_checks.data(asked))
    write_model(tmp_path / "model", character_tokenizer(CHARACTERS), SMALL, seed=1)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    assert config_checks.model(asked).level is Level.OK and config_checks.data(asked).level is Level.OK
    assert os.path.isabs(config_checks.data(asked).said)
