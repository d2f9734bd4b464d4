"""Replicas as processes of their own, that tests kill, freeze and start anew."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from headrace.services.orchestrator.state.registry import STATE_NAMES
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.access import process as access
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.rpc import call, channel
from headrace.wire.rundir.events import read_events
from headrace.wire.v1 import rollout_pb2
from headrace.wire.v1.rollout_pb2_grpc import RolloutServiceStub
from tests.one_token import take_all_roles
from tests.ports import free_port
from tests.warm.start import Process, python, start

RUN_ID = "chaos"
HEARTBEAT_S = 0.3
# `python -m headrace.services.rollout`, dying with the test. No `preexec_fn`: gRPC's threads survive no real fork.


class Replicas:
    """Those of one run directory, by their ids."""

    def __init__(self, folder: Path, *, broker_url: str, orchestrator: str, **rollout: Any) -> None:
        """`rollout`: of the settings' table of that name."""
        take_all_roles(folder)
        self.folder = folder
        self._rollout = rollout
        self._broker_url = broker_url
        self._orchestrator = orchestrator
        self._processes: dict[str, Process] = {}
        self._ports: dict[str, int] = {}
        self.frozen: set[str] = set()

    @property
    def ids(self) -> list[str]:
        return sorted(self._processes)

    def start(self, replica: str) -> None:
        """A new life under this id, with a new address."""
        number = replica.removeprefix("rollout-")
        port = self._ports[replica] = free_port()
        settings = RolloutSettings.model_validate(
            {
                "run": {"id": RUN_ID, "max_staleness": 1},
                "model": {"path": self.folder / "model"},
                "batch": {"groups": 4, "group_size": 2},
                "broker": {"url": self._broker_url, "lease_s": 3.0},
                "run_dir": self.folder,
                "orchestrator_address": self._orchestrator,
                "grpc_port": port,
                "instance": number,
                "rollout": {"max_rows": 4, "context_length": 512, "hold_s": 0.5, "heartbeat_s": HEARTBEAT_S}
                | {"engine_timeout_s": 20.0}
                | self._rollout,
            }
        )
        config = self.folder / f"{replica}.json"
        config.write_text(settings.model_dump_json())
        with (self.folder / f"{replica}.log").open("ab") as log:
            env = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            command = python("headrace.services.rollout", "--config", config)
            self._processes[replica] = start(command, env=env, out=log, err=log)

    def kill(self, replica: str) -> None:
        self._processes[replica].kill()
        self._processes[replica].wait(60)

    def freeze(self, replica: str) -> None:
        self._processes[replica].send_signal(signal.SIGSTOP)
        self.frozen.add(replica)

    def thaw(self, replica: str) -> None:
        self._processes[replica].send_signal(signal.SIGCONT)
        self.frozen.discard(replica)

    def pid(self, replica: str) -> int:
        return self._processes[replica].pid

    async def end(self, replica: str, within_s: float) -> int:
        """Waits for its end; returns the exit code."""
        return await asyncio.to_thread(self._processes[replica].wait, within_s)

    def lives(self, replica: str) -> bool:
        return self._processes[replica].poll() is None

    async def leave(self, replica: str) -> None:
        """A clean end, by SIGTERM."""
        process = self._processes.pop(replica)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 15) == 0, self.logs()

    def close(self) -> None:
        """Whatever state they are in."""
        for process in self._processes.values():
            process.kill()
            process.wait(60)
        access.forget()

    async def look(self, replica: str) -> tuple[str, PolicyVersion]:
        """State and version, from the replica itself; `away` if it does not answer."""
        async with channel(f"127.0.0.1:{self._ports[replica]}") as link:
            stub: Any = RolloutServiceStub(link)
            try:
                seen = await call(stub.GetReplica, rollout_pb2.GetReplicaRequest(), timeout_s=1.0, what=replica)
            except HeadraceError:
                return "away", PolicyVersion(incarnation=0, version=0)
        version = PolicyVersion(incarnation=seen.version.incarnation, version=seen.version.version)
        return STATE_NAMES[seen.state], version

    async def serving(self, version: PolicyVersion, replicas: list[str], within_s: float) -> None:
        """Waits until all of them serve exactly this version."""
        end = time.monotonic() + within_s
        while True:
            seen = {replica: await self.look(replica) for replica in replicas}
            if all(state == "serving" and held == version for state, held in seen.values()):
                return
            assert all(self.lives(replica) for replica in replicas), f"one has ended: {seen}" + self.logs()
            late = f"not all serve {version} within {within_s} s: {seen}"
            assert time.monotonic() < end, late + self.logs()
            await asyncio.sleep(0.05)

    def committed(self) -> dict[str, dict[tuple[PolicyVersion, str], float]]:
        """What each replica says it has committed, over all its lives: replica -> (version, digest) -> when."""
        found: dict[str, dict[tuple[PolicyVersion, str], float]] = {}
        for event in read_events(self.folder):
            if event["event"] == "weights_committed":
                version = PolicyVersion(incarnation=event["incarnation"], version=event["version"])
                replica = event["source"].rpartition("-")[0]
                found.setdefault(replica, {})[version, event["digest"]] = event["t"]
        return found

    def routes(self, replica: str, version: PolicyVersion) -> list[str]:
        """By which ways the orchestrator brought it this version."""
        return [
            event["route"]
            for event in read_events(self.folder)
            if event["event"] == "publication_committed"
            and event["replica_id"] == replica
            and (event["incarnation"], event["version"]) == (version.incarnation, version.version)
        ]

    def logs(self) -> str:
        return "".join(f"\n--- {path.name}\n{path.read_text()[-2500:]}" for path in sorted(self.folder.glob("*.log")))
