"""Rows with an environment begin in the stream of episodes, and are found there as groups are in any other stream."""

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.messages import eval_prompt
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptRow, read_prompts
from headrace.wire.contracts import EnvironmentTask, PromptGroup, decode
from headrace.wire.rundir.prompts import write
from headrace.wire.streams import StreamName
from tests.unit.services.orchestrator.issuing.test_issuer import ROWS, Office, office

TASK = EnvironmentTask(name="calc", digest="d1", task_json='{"a": 1}')
PLAYED = PromptRow(sample_id="p", token_ids=np.empty(0, np.int32), text="1+2", columns={}, environment=TASK)


def rebuilt(it: Office, rows: list[PromptRow]) -> Issuer:
    return Issuer(it.settings, rows, it.store, it.state, it.broker, it.prompts, it.clients, it.events)


async def indices(it: Office, stream: StreamName) -> list[int]:
    return [decode(data).header.group_index for data in await it.broker.live(stream)]


async def test_a_row_with_an_environment_begins_in_episodes_and_every_stream_has_its_own_numbers(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as it:
        issuer = rebuilt(it, [*ROWS[:1], PLAYED])
        await issuer.issue()
        played, completed = await indices(it, StreamName.EPISODES), await indices(it, StreamName.PROMPTS)
        assert sorted([*played, *completed]) == [0, 1, 2] and played and completed
        assert await it.broker.last_sequence(StreamName.EPISODES) == len(played)
        assert await it.broker.last_sequence(StreamName.PROMPTS) == len(completed)
        (first, *_) = await it.broker.live(StreamName.EPISODES)
        body = decode(first).body
        assert isinstance(body, PromptGroup) and body.environment == TASK


async def test_a_group_whose_episodes_are_played_is_not_issued_again(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        issuer = rebuilt(it, [PLAYED])
        await issuer.issue()
        worker = it.broker.consumer(StreamName.EPISODES, "environment-0", lease_s=30)
        await worker.read(count=1, block_s=0.1)
        it.build()
        await rebuilt(it, [PLAYED]).reconcile()
        assert await indices(it, StreamName.EPISODES) == [0, 1, 2]


@pytest.mark.parametrize(("counter", "number"), [(0, 4), (256, 257)])
async def test_numbers_continue_after_what_was_reserved_or_after_the_streams_last_one(
    tmp_path: Path, counter: int, number: int
) -> None:
    async with office(tmp_path) as it:
        await rebuilt(it, [PLAYED]).issue()
        assert it.store.get_int("sequence_episodes") == 256
        it.store.set_int("sequence_episodes", counter)
        next_life = PromptStream(it.broker, it.store)
        await next_life.put(eval_prompt(it.settings, it.settings.eval[0], PLAYED, prompt=0, version=0))
        assert len(await it.broker.live(StreamName.EPISODES)) == 4
        assert await it.broker.last_sequence(StreamName.EPISODES) == number


async def test_an_evaluation_finds_its_episodes(tmp_path: Path) -> None:
    async with office(tmp_path) as it:
        evaluation = Evaluation(it.settings, [PLAYED, PLAYED], it.store, it.broker, it.prompts)
        await it.prompts.put(eval_prompt(it.settings, it.settings.eval[0], PLAYED, prompt=1, version=3))
        assert await evaluation._live(3) == {1}


def test_rows_keep_name_digest_and_task_of_their_environment(tmp_path: Path) -> None:
    played = {"name": "calc", "digest": "d1", "task": {"a": 1}}
    plain = {"sample_id": "a", "token_ids": [1], "text": "t", "columns": "{}"}
    write(tmp_path / "p.parquet", [plain, {**plain, "token_ids": [], "environment": json.dumps(played)}])
    first, second = read_prompts(tmp_path / "p.parquet")
    assert first.environment is None and second.environment == TASK and not len(second.token_ids)
