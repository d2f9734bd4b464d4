"""How a server that takes turns is launched and told, without one."""

from pathlib import Path
from typing import Any

import pytest

from headrace.services.rollout.engines.protocol import InFlight
from headrace.services.rollout.engines.sglang.flags import LaunchPlan, server_config
from headrace.services.rollout.engines.sglang.generation import Generation
from headrace.services.rollout.engines.sglang.hashing import Hashing
from headrace.services.rollout.engines.sglang.update import Updater
from headrace.services.rollout.replica.gpu_turns import make_lock
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ConfigError


def plan(**more: Any) -> LaunchPlan:
    values: dict[str, Any] = {"device": "cuda", "takes_turns": True} | more
    return LaunchPlan(
        model_path=Path("/m"), dtype="bfloat16", host="127.0.0.1", port=1, api_key="a", admin_key="b",
        max_requests=8, env={}, **values,
    )  # fmt: skip


def test_a_server_on_a_gpu_can_release_its_memory_and_leaves_the_trainer_room() -> None:
    config = server_config(plan())
    # exec_.py:57 of 0.5.23: without it `release_memory_occupation` frees nothing, and says so in its log alone.
    assert config["enable-memory-saver"] is True
    assert config["mem-fraction-static"] == 0.6
    assert server_config(plan(mem_fraction_static=0.8))["mem-fraction-static"] == 0.8
    assert "enable-memory-saver" not in server_config(plan(takes_turns=False))
    assert "enable-memory-saver" not in server_config(plan(device="cpu", python_path=(Path("/s"),)))


class Recorder:
    """A client that notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> dict[str, str]:
            self.calls.append(f"{name} {arguments[0]}" if name == "pause" else name)
            return {"weight_version": "1.1"}

        return call


def updater(client: Recorder, stuck: list[str]) -> Updater:
    generation = Generation.__new__(Generation)
    generation.digests = {}
    generation.admission = type("Admission", (), {"release": lambda self: None})()
    hashing = Hashing(client, ranks=1, on_gpu=False)  # type: ignore[arg-type]
    return Updater(client, generation, hashing, InFlight.IN_PLACE, stuck.append, control_timeout_s=1.0)  # type: ignore[arg-type]


async def test_a_server_is_paused_before_it_releases_memory_until_the_publication_has_ended() -> None:
    # release_memory_occupation (weight_updater.py:337) asserts that nothing runs, and kills the scheduler if not; in
    # place, running requests would stay.
    client, stuck = Recorder(), list[str]()
    one = updater(client, stuck)
    await one.sleep(5)
    await one.sleep(5)
    await one.wake(5)
    await one.wake(5)
    await one.prepare(5)
    await one.install(PolicyVersion(incarnation=1, version=1), "d", 5)
    await one.resume(5)
    assert client.calls == [
        "pause retract", "release_memory", "resume_memory", "begin_update", "end_update", "model_info", "flush_cache",
        "resume",
    ]  # fmt: skip
    assert stuck == []


def test_a_server_that_headrace_did_not_start_is_never_put_to_sleep(tmp_path: Path) -> None:
    table = {"engine": "sglang", "gpu_sharing": "turns", "sglang": {"urls": ["http://a:1"]}}
    with pytest.raises(ConfigError, match=r"rollout\.sglang\.urls is not ours"):
        make_lock(RolloutSettings.model_validate({"rollout": table, "run_dir": str(tmp_path)}))
