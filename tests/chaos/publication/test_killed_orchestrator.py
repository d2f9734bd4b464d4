"""The orchestrator dies by SIGKILL in each phase: its next life publishes anew, and the trainer only waited."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytest_asyncio

from headrace.services.orchestrator.issuing.prompts import COLUMNS
from headrace.wire.contracts import PolicyVersion
from headrace.wire.streams.redis import RedisBroker
from tests.chaos.publication.lives import Life, orchestrator_main
from tests.chaos.publication.replicas import RUN_ID, Replicas
from tests.chaos.publication.stage import TIMES, Traffic, Trainer, trainer
from tests.chaos.publication.strike import PHASES, Moment, Watch, install
from tests.chaos.publication.weights import folder_of
from tests.ports import free_port
from tests.rollout_models import random_prompts
from tests.valkey import Valkey

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
MEMBERS = ["rollout-0", "rollout-1"]
BACK_S = 60.0
"""To start, to be found by replicas and trainer, and to end orphaned sessions."""


class Stage:
    """Everything but the orchestrator, whose lives come and go."""

    def __init__(self, folder: Path, side: Trainer, replicas: Replicas, traffic: Traffic, port: int, url: str) -> None:
        self.trainer = side
        self.replicas = replicas
        self.traffic = traffic
        self.version = 0
        self._folder = folder
        self._lives: list[Life] = []
        self._settings: dict[str, Any] = {
            "run": {"id": RUN_ID, "max_steps": 1000, "max_staleness": 1},
            "batch": {"groups": 4, "group_size": 2},
            "broker": {"url": url},
            "run_dir": str(folder),
            "grpc_port": port,
            "orchestrator": {"replica_lease_s": 8.0, "publication": TIMES.model_dump()},
            "sampling": {"max_tokens": 40},
        }

    def orchestrator(self) -> Life:
        """Its next life, at the same address and with the same state."""
        self._lives.append(Life(orchestrator_main, self._settings, log=self._folder / "orchestrator.log"))
        return self._lives[-1]

    @property
    def life(self) -> Life:
        return self._lives[-1]

    async def publish(self) -> PolicyVersion:
        self.version += 1
        return await self.trainer.publish(self.version, 40)

    def close(self) -> None:
        for life in self._lives:
            life.close()


def write_prompts(path: Path) -> None:
    rows = [(f"p{index}", random_prompts(7, seed=500 + index)[0], "", json.dumps({})) for index in range(20)]
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    install(patch)
    folder = tmp_path_factory.mktemp("stage")
    valkey = Valkey(folder / "valkey")
    valkey.start()
    folder_of(folder / "model")
    write_prompts(folder / "prompts.parquet")
    port = free_port()
    address = f"127.0.0.1:{port}"
    broker = RedisBroker(valkey.url, RUN_ID)
    replicas = Replicas(folder, broker_url=valkey.url, orchestrator=address)
    async with trainer(folder, address) as side:
        traffic = Traffic(broker, replicas)
        taking = asyncio.create_task(traffic.run())
        opened = Stage(folder, side, replicas, traffic, port, valkey.url)
        try:
            opened.orchestrator()
            for replica in MEMBERS:
                replicas.start(replica)
            await side.register()
            await replicas.serving(await opened.publish(), MEMBERS, 60)
            yield opened
        finally:
            traffic.over = True
            await taking
            opened.close()
            replicas.close()
            await broker.close()
            valkey.stop()


@pytest.mark.long
@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("phase", PHASES)
async def test_its_next_life_publishes_anew_and_the_trainer_only_waits(stage: Stage, phase: str, middle: bool) -> None:
    dying = stage.life
    if (phase, middle) == ("transfer", True):
        Watch.moment = Moment(phase, stage.version + 1, dying.process.kill, middle=True)
    else:
        await dying.ask(phase, stage.version + 1, middle)
    publishing = asyncio.create_task(stage.publish())
    await dying.death()
    stage.orchestrator()
    new = await publishing
    await stage.replicas.serving(new, MEMBERS, BACK_S)
    # Nothing of the broken publication is left over: the one after it finds everybody.
    newer = await stage.publish()
    await stage.replicas.serving(newer, MEMBERS, 60)
    assert newer.incarnation == 1, "the same life of the trainer"
    stage.traffic.check()
    assert stage.traffic.looked_at
