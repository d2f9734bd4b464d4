"""Servers that the engine launches itself: what becomes of them when something dies or stands still."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from headrace.services.rollout.engines.protocol import AbandonedError
from headrace.services.rollout.engines.sglang.engine import SGLangEngine
from headrace.services.rollout.engines.sglang.start import start_engine
from headrace.services.trainer.model.loading import load_policy
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import TransientError
from headrace.wire.v1 import rollout_pb2
from tests.rollout_models import make_model, make_request, make_silent_model, random_prompts, save_folder
from tests.sglang import (
    Trainer,
    engine_of,
    expected_checksums,
    group_of,
    sglang_settings,
    sglang_venv,
    take,
)
from tests.waiting import until

pytestmark = pytest.mark.sglang

V1 = PolicyVersion(incarnation=1, version=1)


async def launched(folder: Path, **rollout: object) -> tuple[SGLangEngine, int]:
    """With weights, and the id of its process group."""
    model_path = save_folder(make_model(max_position_embeddings=4096), folder / "model")
    engine = await start_engine(sglang_settings(model_path, folder, {"venv": sglang_venv()}, **rollout))
    assert engine._process is not None
    assert engine.loaded_checksums == expected_checksums(make_model())
    await Trainer().publish(engine, make_model(), 0)
    return engine, engine._process.pid


async def test_a_launched_server_keeps_its_keys_to_itself_and_its_death_ends_the_engine(tmp_path: Path) -> None:
    engine, leader = await launched(tmp_path)
    try:
        await keys_are_private(tmp_path, leader)
        group = asyncio.create_task(engine.generate(make_request([1, 2], 3, max_tokens=4000)))
        await asyncio.sleep(0.3)
        scheduler = next(
            each for each in group_of(leader) if b"scheduler" in Path(f"/proc/{each}/cmdline").read_bytes()
        )
        os.kill(scheduler, signal.SIGKILL)
        with pytest.raises(AbandonedError):
            await asyncio.wait_for(group, 15)
        with pytest.raises(TransientError):
            await asyncio.wait_for(engine.failed(), 15)
        until(lambda: not group_of(leader))
        with pytest.raises(TransientError, match="broken down"):
            await engine.prepare(V1, take(make_model()).plan, 5)
    finally:
        await engine.close(5)


async def test_a_float32_head_gives_the_trainers_logprobs(tmp_path: Path) -> None:
    model = make_silent_model(max_position_embeddings=4096)
    folder = save_folder(model, tmp_path / "model")
    settings = sglang_settings(folder, tmp_path, {"venv": sglang_venv()})
    settings = settings.model_copy(
        update={"model": settings.model.model_copy(update={"dtype": "bfloat16", "fp32_head": True})}
    )
    prompt = random_prompts(60)[0]
    async with engine_of(settings) as engine:
        await Trainer().publish(engine, model, 0)
        found = await engine.score(np.array(prompt, np.int32), 30)
    ids, places = torch.tensor(prompt), torch.arange(len(prompt) - 1)
    gaps = {}
    for wide in (True, False):
        policy = load_policy(folder, device="cpu", forward_dtype=torch.bfloat16, trainable=False, fp32_head=wide)
        with torch.no_grad():
            ones = torch.ones(len(places))
            scores = policy(ids[None, :-1], torch.zeros_like(places), places, ids[1:], ones, 64)
        gaps[wide] = float(np.abs(scores.logprobs.numpy() - found).max())
    assert gaps[True] < 1e-4 and gaps[False] > 1e-2, gaps


async def keys_are_private(folder: Path, leader: int) -> None:
    config = folder / "run" / "rollout-0.sglang.yaml"
    log = folder / "logs" / "rollout-0.sglang.log"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (config, log)} == {0o600}
    keys = [line.split('"')[3] for line in config.read_text().splitlines() if "api-key" in line]
    assert len(set(keys)) == 2
    for process in group_of(leader):
        command = Path(f"/proc/{process}/cmdline").read_text() + Path(f"/proc/{process}/environ").read_text()
        assert not any(key in command for key in keys)
    port = next(line.split(":")[1].strip(" ,") for line in config.read_text().splitlines() if '"port"' in line)
    async with httpx.AsyncClient() as http:
        for path in ("/generate", "/pause_generation", "/update_weights_from_disk"):
            for headers in ({}, {"Authorization": "Bearer guess"}):
                answer = await http.post(f"http://127.0.0.1:{port}{path}", json={}, headers=headers)
                assert answer.status_code == 401
        user = {"Authorization": f"Bearer {keys[0]}"}
        assert (await http.post(f"http://127.0.0.1:{port}/pause_generation", json={}, headers=user)).status_code == 401


async def test_a_server_that_freezes_in_the_transfer_is_killed_by_the_deadline(tmp_path: Path) -> None:
    engine, leader = await launched(tmp_path)
    try:
        group = asyncio.create_task(engine.generate(make_request([1, 2], 3, max_tokens=4000)))
        await asyncio.sleep(0.3)
        trainer, snapshot = Trainer(), take(make_model(seed=1))
        await engine.prepare(V1, snapshot.plan, 10)
        os.killpg(leader, signal.SIGSTOP)
        request = rollout_pb2.ReceiveWeightsRequest(publication_id="p", collective=trainer.source, deadline_s=1.5)
        with pytest.raises(TransientError):
            await engine.receive(snapshot.plan, request, 1.5)
        with pytest.raises(TransientError, match="waited for SGLang to leave the group"):
            await asyncio.wait_for(engine.failed(), 15)
        with pytest.raises(AbandonedError):
            await asyncio.wait_for(group, 15)
        until(lambda: not group_of(leader))
    finally:
        await engine.close(5)


async def test_a_server_dies_with_its_service_also_while_it_loads(tmp_path: Path) -> None:
    """SIGKILL to the service at the worst moment: when the server's children do not yet look after themselves."""
    model_path = save_folder(make_model(), tmp_path / "model")
    settings = sglang_settings(model_path, tmp_path, {"venv": sglang_venv()})
    (tmp_path / "settings.json").write_text(settings.model_dump_json())
    service = subprocess.Popen([sys.executable, "-c", _STARTS_AN_ENGINE, str(tmp_path / "settings.json")])
    try:
        pid_file = tmp_path / "logs" / "rollout-0.sglang.log"
        until(pid_file.exists, seconds=60)
        (guarded,) = [each for each in children_of(service.pid) if Path(f"/proc/{each}").exists()]
        until(lambda: len(group_of(guarded)) >= 5, seconds=90)
        service.kill()
        service.wait()
        until(lambda: not group_of(guarded), seconds=5)
    finally:
        service.kill()
        service.wait()


_STARTS_AN_ENGINE = """
import asyncio, sys
from pathlib import Path
from headrace.services.rollout.engines.sglang.start import start_engine
from headrace.services.rollout.settings import RolloutSettings

async def main():
    await start_engine(RolloutSettings.model_validate_json(Path(sys.argv[1]).read_text()))
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def children_of(parent: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
