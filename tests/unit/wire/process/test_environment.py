"""What a container's surroundings say stands above the settings file."""

import os
import socket
from pathlib import Path

import pytest

from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.config.settings import ServiceSettings
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import BROKER_FILE, keep_out, overlay, read_broker_url

FILE = {"broker": {"url": "redis://file/0", "lease_s": 7.0}, "instance": "3", "run_dir": "/a"}


def test_each_variable_stands_above_the_file_and_leaves_its_neighbours() -> None:
    found = overlay(
        FILE,
        {
            "HEADRACE_INSTANCE": "pod-x7",
            "HEADRACE_ANNOUNCE": "10.0.0.4",
            "HEADRACE_ORCHESTRATOR_ADDRESS": "orchestrator:7000",
            "HEADRACE_RUN_DIR": "/runs/demo",
            "HEADRACE_BROKER__URL": "redis://valkey/0",
            "HEADRACE_TRAINER__LEARNING_RATE": "1",
        },
    )
    settings = ServiceSettings.model_validate(found)
    assert (settings.instance, settings.reach, settings.number) == ("pod-x7", "10.0.0.4", 0)
    assert settings.orchestrator_address == "orchestrator:7000" and settings.run_dir == Path("/runs/demo")
    assert settings.broker.url == "redis://valkey/0" and settings.broker.lease_s == 7.0
    assert FILE["broker"] == {"url": "redis://file/0", "lease_s": 7.0}


def test_the_brokers_url_comes_from_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://:word@valkey/0\n")
    environment = {BROKER_FILE: str(secret), "HEADRACE_BROKER__URL": "redis://other/0"}
    assert overlay(FILE, environment)["broker"]["url"] == "redis://:word@valkey/0" == read_broker_url(environment)
    secret.write_text("")
    with pytest.raises(ConfigError, match=r"HEADRACE_BROKER__URL_FILE: .* is empty"):
        read_broker_url(environment)
    with pytest.raises(ConfigError, match=r"HEADRACE_BROKER__URL_FILE: .*No such file"):
        overlay(FILE, {BROKER_FILE: str(tmp_path / "none")})


def test_node_variables_apply_to_the_trainer_and_other_services_ignore_them() -> None:
    told = {"HEADRACE_NODE": "1", "HEADRACE_RENDEZVOUS": "10.0.0.4:29500"}
    assert overlay(FILE, told) == FILE
    found = overlay({"trainer": {"nodes": 2, "ranks": 2}}, told, TrainerSettings.model_fields)
    settings = TrainerSettings.model_validate(found)
    assert (settings.node, settings.trainer.rendezvous, settings.trainer.nodes) == (1, "10.0.0.4:29500", 2)


def test_an_instance_that_could_leave_its_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="HEADRACE_INSTANCE"):
        overlay({}, {"HEADRACE_INSTANCE": "../x"})


def test_launcher_variables_are_removed_and_user_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    here = socket.if_nameindex()[0][1]
    others = ("RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "PET_NNODES", "GRPC_EXPERIMENTS", "NCCL_COMM_ID")
    users = ("GRPC_TRACE", "GRPC_ENABLE_FORK_SUPPORT", "NCCL_DEBUG", "NCCL_IB_HCA", "HTTPS_PROXY", "MY_RANK")
    for name in (*others, *users):
        monkeypatch.setenv(name, "1")
    assert set(keep_out()) >= set(others)
    assert os.environ.keys() >= set(users) and not os.environ.keys() & set(others)
    for name, value, stays in (
        ("GLOO_SOCKET_IFNAME", here, True),
        ("GLOO_SOCKET_IFNAME", f"{here},none0", False),
        ("NCCL_SOCKET_IFNAME", f"none,{here}", True),
        ("NCCL_SOCKET_IFNAME", "none0", False),
        ("NCCL_SOCKET_IFNAME", "^docker0", True),
    ):
        monkeypatch.setenv(name, value)
        assert (name not in keep_out()) is stays, (name, value)
