"""What `headrace join --rollout` plans on a machine, and what it refuses."""

import json
from pathlib import Path

import pytest

from headrace.config.services import SETTINGS
from headrace.doctor import placement
from headrace.run.joining.nodes import announced_address
from headrace.run.joining.replicas import Joined, MachineShare
from headrace.wire.errors import ConfigError

ON_GPUS = '[run]\ndevice = "cuda"\n[rollout]\nengine = "sglang"\n[rollout.sglang]\ntp = 2\n'
SERVED = {"orchestrator_address": "192.0.2.1:7000", "announce": "192.0.2.1", "broker": {"url": "redis://192.0.2.1:1"}}


def run_dir(folder: Path, text: str = "", **settings: object) -> Path:
    made = folder / "run" / "config"
    made.mkdir(parents=True)
    (folder / "model").mkdir()
    (made / "run.toml").write_text(f'[data]\npath = "rows.jsonl"\n{text}')
    for service in ("rollout", "reward"):
        values = SERVED | {"model": {"path": str(folder / "model")}} | settings
        whole = SETTINGS[service].model_validate(values)
        (made / f"{service}-0.json").write_text(whole.model_dump_json(serialize_as_any=True))
    return made.parent


def test_servers_take_the_gpus_and_every_replica_a_name_an_address_and_ports_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "_listed", lambda: 8)
    folder = run_dir(tmp_path, ON_GPUS)
    joined = Joined(folder, "gpu7", {"HEADRACE_ANNOUNCE": "192.0.2.7"})
    plans = joined.plans(MachineShare(services=("rollout", "reward"), gpus=MachineShare.gpus_of("2-7")))
    assert [plan.name for plan in plans] == ["rollout-gpu7-0", "rollout-gpu7-1", "rollout-gpu7-2", "reward-gpu7-0"]
    assert len({plan.grpc_port for plan in plans} | {plan.http_port for plan in plans}) == 8
    written = [json.loads((folder / "config" / f"{plan.name}.json").read_text()) for plan in plans]
    assert [one["rollout"]["sglang"]["base_gpu_id"] for one in written[:3]] == [2, 4, 6]
    assert {(one["announce"], one["grpc_socket"]) for one in written} == {("192.0.2.7", None)}
    for share, said in (
        (MachineShare(services=("rollout",), gpus=range(6, 9)), "GPU 8 is asked for, and this machine has 8"),
        (MachineShare(services=("rollout",), replicas=5), "5 replicas of rollout.sglang.tp = 2 do not fit 8 GPUs"),
        (MachineShare(services=("environment",)), "--environment: the run in .* has no such service"),
    ):
        with pytest.raises(ConfigError, match=said):
            joined.plans(share)


@pytest.mark.parametrize("address", ["127.0.1.1", "localhost", "fd00::1", "10.0.0.1:7000"])
def test_an_address_that_no_other_machine_reaches_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=f"HEADRACE_ANNOUNCE: {address} is not an address by which other machines"):
        announced_address({"HEADRACE_ANNOUNCE": address})
    assert announced_address({"HEADRACE_ANNOUNCE": "10.0.0.1"}) == "10.0.0.1" and announced_address({}) == ""


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "0,2", "-1"])
def test_gpus_are_a_range(text: str) -> None:
    with pytest.raises(ConfigError, match="give the first and the last index"):
        MachineShare.gpus_of(text)


def test_a_run_that_others_cannot_reach_or_share_is_refused_with_the_way_out(tmp_path: Path) -> None:
    alone = run_dir(tmp_path / "alone", orchestrator_address="unix:/run/o.sock")
    with pytest.raises(ConfigError, match="HEADRACE_ANNOUNCE=ADDRESS headrace train --resume --run-dir"):
        Joined(alone, "b", {})
    local = run_dir(tmp_path / "local", broker={"url": "redis://:secret@localhost:6379"})
    debian = run_dir(tmp_path / "debian", orchestrator_address="127.0.1.1:7000")
    with pytest.raises(ConfigError, match="listens on its own machine alone"):
        Joined(debian, "b", {})
    with pytest.raises(ConfigError, match=r"broker.url = 'redis://localhost:6379' is on the run's own machine"):
        Joined(local, "b", {})
    share = MachineShare(services=("rollout",), gpus=range(1))
    with pytest.raises(ConfigError, match="launches no SGLang server on a GPU"):
        Joined(run_dir(tmp_path / "cpu"), "b", {}).plans(share)
    turns = "[run]\nmax_staleness = 0\n" + '[rollout]\ngpu_sharing = "turns"\n'
    with pytest.raises(ConfigError, match="are those of the first machine"):
        Joined(run_dir(tmp_path / "turns", turns), "b", {}).plans(share)
    bare = run_dir(tmp_path / "bare")
    (tmp_path / "bare" / "model").rmdir()
    with pytest.raises(ConfigError, match="is not on this machine: share its disk"):
        Joined(bare, "b", {"HEADRACE_ANNOUNCE": "192.0.2.7"}).plans(MachineShare(services=("reward",)))
