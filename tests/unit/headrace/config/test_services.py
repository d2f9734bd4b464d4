"""What each process is told."""

import json
from pathlib import Path

import pytest

from headrace.config.resolve import resolve, settle
from headrace.config.services import MachineLayout
from headrace.run.plans import Planner, choose_ports


@pytest.mark.parametrize(
    ("fixed", "sockets", "address", "own"),
    [
        (0, True, "unix:{folder}/orchestrator.sock", "{folder}/rollout-1.sock"),
        (7001, True, "127.0.0.1:7001", "{folder}/rollout-1.sock"),
        (7001, False, "127.0.0.1:7001", None),
    ],
)
def test_grpc_has_a_socket_where_the_config_fixes_no_port(
    tmp_path: Path, fixed: int, sockets: bool, address: str, own: str | None
) -> None:
    table = f"[orchestrator]\ngrpc_port = {fixed}\n"
    (tmp_path / "run.toml").write_text(f'{table}[data]\npath = "p.jsonl"\n[model]\npath = "model"\n')
    resolved = settle(resolve(tmp_path / "run.toml"), tmp_path / "run", goes_on=False)
    ports = choose_ports(resolved, sockets=sockets)
    folder = tmp_path / "rpc"
    (tmp_path / "config").mkdir()
    place = MachineLayout(tmp_path, "unix:///x", ports, stop_token_ids=[1], sockets=folder if sockets else None)
    planner = Planner(resolved.config, place, {})
    plans = {plan.name: plan for plan in (*planner.all(), planner.replica("rollout", 1))}
    found = json.loads((tmp_path / "config/rollout-1.json").read_text())
    assert found["orchestrator_address"] == address.format(folder=folder)
    assert found["grpc_socket"] == (None if own is None else own.format(folder=folder))
    assert plans["orchestrator"].grpc_port == fixed
    assert all((plan.grpc_port > 0) == (plan.grpc_socket is None) for plan in plans.values())
