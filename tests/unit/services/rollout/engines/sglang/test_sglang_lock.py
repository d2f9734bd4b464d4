"""The server of a shared GPU holds its lock: nobody takes the GPU before the server too is gone."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headrace.services.rollout.engines.sglang.flags import LaunchPlan
from headrace.services.rollout.engines.sglang.process import ServerProcess
from headrace.wire.host.gpu_lock import GpuLock
from tests.waiting import until


@asynccontextmanager
async def launched(folder: Path, lock: GpuLock) -> AsyncIterator[None]:
    """A program in the place of the interpreter that runs SGLang, launched as a server is."""
    server, up = folder / "python", folder / "up"
    server.write_text(f"#!/bin/sh\necho up > {up}\nexec sleep 300\n")
    server.chmod(0o755)
    plan = LaunchPlan(
        model_path=folder, dtype="bfloat16", device="cuda", host="127.0.0.1", port=1, api_key="a", admin_key="b",
        max_requests=1, env={}, takes_turns=True,
    )  # fmt: skip
    process = await ServerProcess.launch(plan, server, run_dir=folder, name="rollout-0.sglang", lock=lock)
    try:
        until(up.exists)
        yield
    finally:
        await process.end()


async def test_a_server_keeps_the_lock_after_its_service_dies(tmp_path: Path) -> None:
    lock, trainer = GpuLock(tmp_path, 0, "rollout-0"), GpuLock(tmp_path, 0, "trainer")
    assert lock.try_take()
    async with launched(tmp_path, lock):
        os.close(lock.file)  # As by the death of the service, whose server is not gone yet.
        assert not trainer.try_take()
    until(trainer.try_take)


async def test_a_service_that_releases_the_gpu_also_releases_it_for_its_server(tmp_path: Path) -> None:
    lock, trainer = GpuLock(tmp_path, 0, "rollout-0"), GpuLock(tmp_path, 0, "trainer")
    assert lock.try_take()
    async with launched(tmp_path, lock):
        assert not trainer.try_take()
        lock.give()
        assert trainer.try_take()
