"""`RolloutService.Sample` of a running replica: over gRPC, with the torch engine, through publications."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.wire.contracts import Sampling
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.codec import SAMPLING, SPAN
from headrace.wire.errors import TransientError
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.rollout.world import World, replica
from tests.rollout_models import make_model, random_prompts, reference_logprobs
from tests.waiting import until_async


def request(context: list[int], *, turn: int = 0, max_tokens: int = 12, **others: Any) -> pb.SampleRequest:
    return pb.SampleRequest(
        rollout_id="test/g00000000/0",
        turn=turn,
        context_ids=ids_to_bytes(np.array(context, np.int32)),
        sampling=SAMPLING.to_pb(Sampling(max_tokens=max_tokens, seed=100 + turn)),
        **{"deadline_s": 20.0} | others,
    )


async def ask(world: World, asked: pb.SampleRequest) -> tuple[np.ndarray, np.ndarray, list[int]]:
    answer = await world.ask("Sample", asked)
    versions = [span.version.version for span in map(SPAN.from_pb, answer.spans)]
    return ids_from_bytes(answer.token_ids), floats_from_bytes(answer.logprobs), versions


@pytest.mark.parametrize("deterministic", [False, True])
async def test_turns_of_an_episode_are_sampled_after_all_earlier_tokens(tmp_path: Path, deterministic: bool) -> None:
    async with replica(tmp_path, deterministic=deterministic) as world:
        with pytest.raises(TransientError, match="rollout-0 is pending_weights"):
            await world.ask("Sample", request([5]))
        await world.publish(0)
        (context,) = random_prompts(9, seed=1)
        for turn in range(3):
            ids, logprobs, versions = await ask(world, request(context, turn=turn))
            wanted, _ = reference_logprobs(world.model, context, ids)
            np.testing.assert_allclose(logprobs, wanted, atol=1e-4)
            assert versions == [0]
            again, same, _ = await ask(world, request(context, turn=turn))
            assert again.tolist() == ids.tolist()
            if deterministic:
                assert same.tobytes() == logprobs.tobytes()
            context = [*context, *ids.tolist(), *random_prompts(4, seed=turn + 7)[0]]


async def test_a_turn_interrupted_by_a_publication_has_spans_of_two_versions(tmp_path: Path) -> None:
    async with replica(tmp_path) as world:
        await world.publish(0)
        old = world.model
        (context,) = random_prompts(9, seed=1)
        running = asyncio.create_task(ask(world, request(context, max_tokens=1500)))
        await until_async(lambda: world.engine.stats().generated_tokens > 20)
        world.model = make_model(seed=1)
        await world.publish(1)
        ids, logprobs, versions = await running
        assert versions == [0, 1]
        before, _ = reference_logprobs(old, context, ids)
        np.testing.assert_allclose(logprobs[:20], before[:20], atol=1e-4)
