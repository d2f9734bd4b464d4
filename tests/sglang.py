"""The real SGLang server on a CPU for tests; they skip aloud where it is not installed."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from headrace.services.rollout.engines.sglang import guard
from headrace.services.rollout.engines.sglang.engine import SGLangEngine
from headrace.services.rollout.engines.sglang.process import free_port
from headrace.services.rollout.engines.sglang.start import start_engine
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.wire.contracts import PolicyVersion
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import CollectiveGroup, Snapshot, make_snapshot, open_store
from tests.rollout_models import make_model, save_folder

ROOT = Path(__file__).parents[1]
_FAULTS = ROOT / "tests" / "integration" / "sglang" / "faults"
_READY_S = 170.0
_HOW = (
    "the real SGLang is not installed for tests: run `deploy/sglang-cpu/install.sh VENV` once "
    "and set HEADRACE_SGLANG_VENV=VENV"
)


def sglang_venv() -> Path:
    """The environment with SGLang, or the test skips."""
    found = os.environ.get("HEADRACE_SGLANG_VENV", "")
    if not found:
        pytest.skip(_HOW)
    return Path(found).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that tests attach to."""

    url: str
    model_path: Path
    api_key_file: Path
    admin_key_file: Path
    fault_file: Path
    process_group: int

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Its weight loading lies: see `faults/sitecustomize.py`."""
        self.fault_file.write_text(what)
        try:
            yield
        finally:
            self.fault_file.unlink()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes stand still."""
        os.killpg(self.process_group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process_group, signal.SIGCONT)

    @contextmanager
    def slowed(self, seconds: float = 0.02) -> Iterator[None]:
        """Each of its steps takes at least so long: what runs is still running when something else has happened."""
        self.call("/slow_down", {"forward_sleep_time": seconds})
        try:
            yield
        finally:
            self.call("/slow_down", {"forward_sleep_time": None})

    def call(self, path: str, body: Mapping[str, Any]) -> None:
        """An administrator's call behind the engine's back."""
        key = self.admin_key_file.read_text()
        httpx.post(
            self.url + path, json=body, headers={"Authorization": f"Bearer {key}"}, timeout=30
        ).raise_for_status()


def serve(folder: Path, model: Any = None, *flags: str) -> Iterator[Server]:
    """Starts the recipe's own server; a generator for a fixture. `model`: one or its folder; none = a tiny Qwen3."""
    venv = sglang_venv()
    model = model or make_model(max_position_embeddings=4096)
    model_path = model if isinstance(model, Path) else save_folder(model, folder / "model")
    port = free_port("127.0.0.1")
    keys = {name: folder / name for name in ("api-key", "admin-api-key")}
    for path in keys.values():
        path.write_text(secrets.token_hex(8))
    fault_file = folder / "fault"
    command = [str(ROOT / "deploy/sglang-cpu/serve.sh"), str(venv), str(model_path), str(port), "--dtype", "float32"]
    for name, path in keys.items():
        command += [f"--{name}", path.read_text()]
    command += flags
    variables = {"HEADRACE_TEST_FAULT": str(fault_file), "PYTHONPATH": str(_FAULTS), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | variables,
            start_new_session=True,
        )
    server = Server(
        url=f"http://127.0.0.1:{port}",
        model_path=model_path,
        api_key_file=keys["api-key"],
        admin_key_file=keys["admin-api-key"],
        fault_file=fault_file,
        process_group=process.pid,
    )
    try:
        _await_ready(server, process, folder / "log")
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def _await_ready(server: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _READY_S
    headers = {"Authorization": f"Bearer {server.api_key_file.read_text()}"}
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(f"{server.url}/ready", headers=headers, timeout=2).status_code == 200:
                return
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.2)


def sglang_settings(model_path: Path, run_dir: Path, sglang: Mapping[str, Any], **rollout: Any) -> RolloutSettings:
    """Settings of a replica with this engine."""
    table = {"engine": "sglang", "sglang": {"device": "cpu"} | dict(sglang), "max_rows": 16} | rollout
    return RolloutSettings.model_validate(
        {
            "run": {"id": "test", "max_staleness": 1},
            "model": {"path": model_path},
            "batch": {"groups": 8, "group_size": 3},
            "run_dir": run_dir,
            "rollout": table,
        }
    )


def attached(server: Server, run_dir: Path, **rollout: Any) -> RolloutSettings:
    """Settings of a replica on a running server."""
    found = {"urls": [server.url], "api_key_file": server.api_key_file, "admin_key_file": server.admin_key_file}
    return sglang_settings(server.model_path, run_dir, found, **rollout)


@asynccontextmanager
async def engine_of(settings: RolloutSettings) -> AsyncIterator[SGLangEngine]:
    """Started and, at the end, closed."""
    engine = await start_engine(settings)
    try:
        yield engine
    finally:
        await engine.close(5)


class Trainer:
    """The sending side of publications to one engine: its group is kept from one to the next."""

    def __init__(self) -> None:
        self._store, self._port = open_store("127.0.0.1")
        self._group: CollectiveGroup | None = None
        self.name = f"group-{secrets.token_hex(4)}"

    @property
    def source(self) -> rollout_pb2.CollectiveGroup:
        """For ReceiveWeights."""
        return rollout_pb2.CollectiveGroup(
            name=self.name,
            backend="gloo",
            store_host="127.0.0.1",
            store_port=self._port,
            rank=1,
            world_size=2,
        )

    def send(self, snapshot: Snapshot) -> None:
        """Blocks; for a thread."""
        if self._group is None:
            self._group = CollectiveGroup.join(self.name, "gloo", "127.0.0.1", self._port, 0, 2, 10)
        for bucket in snapshot.buckets:
            self._group.broadcast(bucket, 10)

    def abort(self) -> None:
        """The next publication needs a new one."""
        if self._group is not None:
            self._group.abort()

    async def publish(
        self, engine: SGLangEngine, model: Any, version: int, *, resume: bool = True, timeout_s: float = 20.0
    ) -> Snapshot:
        """Prepare, transfer, install; then, unless told otherwise, resume."""
        snapshot = take(model)
        target = PolicyVersion(incarnation=1, version=version)
        await engine.prepare(target, snapshot.plan, timeout_s)
        sending = asyncio.create_task(asyncio.to_thread(self.send, snapshot))
        request = rollout_pb2.ReceiveWeightsRequest(publication_id="p", collective=self.source, deadline_s=timeout_s)
        assert await engine.receive(snapshot.plan, request, timeout_s) == []
        await sending
        await engine.install(target, snapshot.plan.weights_digest, timeout_s)
        if resume:
            await engine.resume(timeout_s)
        return snapshot


def take(model: Any) -> Snapshot:
    """Several buckets."""
    return make_snapshot(model.named_parameters(), dtype=torch.float32, bucket_bytes=40_000)


def expected_checksums(model: Any) -> dict[str, str]:
    """What the trainer says that the server's must be."""
    return engine_checksums(((name, each.detach()) for name, each in model.named_parameters()), "sglang-sha256")


def group_of(leader: int) -> list[int]:
    """Living processes of the process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found
