"""The engine against the real server: what it generates, and what a publication leaves in it."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.rollout.engines.protocol import AbandonedError
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.engine import SGLangEngine
from headrace.wire.contracts import FinishReason, PolicyVersion
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import save_weights
from tests.rollout_models import VOCAB, make_model, make_request, random_prompts, reference_logprobs
from tests.sglang import Server, Trainer, attached, engine_of, expected_checksums

pytestmark = pytest.mark.sglang

CANARY = [*random_prompts(24, seed=5)[0], VOCAB - 1]
STOPS = (5, 9, 95)
"""The tokenizer's own end token is among them, as in every run: SGLang always stops at it."""
LONG = {"max_tokens": 120, "stop_token_ids": ()}


def gap(model: Any, prompt: list[int], tokens: np.ndarray, logprobs: np.ndarray) -> float:
    wanted, _ = reference_logprobs(model, prompt, tokens)
    return float(np.abs(wanted - logprobs).max())


async def canary_gap(engine: SGLangEngine, model: Any) -> float:
    found = await engine.score(np.array(CANARY, np.int32), 10)
    wanted, _ = reference_logprobs(model, CANARY[:1], np.array(CANARY[1:], np.int32))
    return float(np.abs(wanted - found).max())


async def running(engine: SGLangEngine, count: int) -> None:
    """Until the server has decoded so many for a while; what waits on a busy machine has no token yet."""
    async with asyncio.timeout(60):
        while engine.stats().rollouts < count or (await engine._client.loads(30))[0] < count:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)


async def test_rollouts_have_the_logprobs_that_transformers_computes(server: Server, tmp_path: Path) -> None:
    model = make_model(seed=3)
    async with engine_of(attached(server, tmp_path)) as engine:
        digest = (await Trainer().publish(engine, model, 0)).plan.weights_digest
        prompts = [*random_prompts(3, 7, 20), [VOCAB - 1, 0, VOCAB - 1]]
        requests = [make_request(prompt, 4, max_tokens=40, stop_token_ids=STOPS) for prompt in prompts]
        for prompt, group in zip(prompts, await asyncio.gather(*map(engine.generate, requests)), strict=True):
            assert len(group) == 4 and len({tuple(each.token_ids) for each in group}) > 1
            for each in group:
                assert gap(model, prompt, each.token_ids, each.logprobs) < 1e-5
                stopped = each.token_ids[-1] in STOPS
                assert each.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
                assert stopped or len(each.token_ids) == 40
                assert not set(each.token_ids[:-1]) & set(STOPS)
                (span,) = each.spans
                assert (span.start, span.end) == (0, len(each.token_ids))
                assert span.version == PolicyVersion(incarnation=1, version=0) and span.weights_digest == digest
        assert engine.stats().generated_tokens > 16 and engine.stats().groups == 0


async def test_a_publication_proves_itself_and_its_group_serves_the_next(server: Server, tmp_path: Path) -> None:
    trainer = Trainer()
    async with engine_of(attached(server, tmp_path)) as engine:
        assert engine.checksum_format == "sglang-sha256" and engine.routes.backends == ("gloo",)
        # By the server's own word for its kernels.
        assert engine._limits.plain_experts
        for version, seed in enumerate((3, 4, 5)):
            model = make_model(seed=seed)
            await trainer.publish(engine, model, version, resume=False)
            assert await engine.checksums(10) == expected_checksums(model)
            assert await canary_gap(engine, model) < 1e-5
            await engine.resume(10)
            (one,) = await engine.generate(make_request([1, 2, 3], 1, max_tokens=5))
            assert [span.version.version for span in one.spans] == [version]


async def test_a_trainer_that_dies_in_the_transfer_does_not_take_the_server_along(
    server: Server, tmp_path: Path
) -> None:
    async with engine_of(attached(server, tmp_path)) as engine:
        trainer, model = Trainer(), make_model(seed=3)
        snapshot = await trainer.publish(engine, model, 0)
        await engine.prepare(PolicyVersion(incarnation=1, version=1), snapshot.plan, 10)
        trainer.abort()
        request = rollout_pb2.ReceiveWeightsRequest(publication_id="p", collective=trainer.source, deadline_s=600)
        with pytest.raises(TransientError):
            async with asyncio.timeout(120):  # Long before the deadline.
                await engine.receive(snapshot.plan, request, 600)
        await engine.discard()
        await Trainer().publish(engine, model, 1)
        assert await engine.checksums(10) == expected_checksums(model)


async def test_weights_also_come_from_disk(server: Server, tmp_path: Path) -> None:
    model = make_model(seed=6)
    folder = tmp_path / "v0"
    save_weights(folder, model.named_parameters(), {})
    (folder / "config.json").write_text((server.model_path / "config.json").read_text())
    async with engine_of(attached(server, tmp_path)) as engine:
        snapshot = await Trainer().publish(engine, make_model(), 0)
        version = PolicyVersion(incarnation=1, version=1)
        await engine.prepare(version, snapshot.plan, 10)
        request = rollout_pb2.ReceiveWeightsRequest(publication_id="p", disk_path=str(folder), deadline_s=10)
        assert await engine.receive(snapshot.plan, request, 10) == []
        await engine.install(version, "from-disk", 10)
        assert await engine.checksums(10) == expected_checksums(model)
        assert await canary_gap(engine, model) < 1e-5
        await engine.resume(10)
        (one,) = await engine.generate(make_request([1, 2, 3], 1, max_tokens=5))
        assert [span.weights_digest for span in one.spans] == ["from-disk"]


async def test_running_rollouts_are_retracted_and_their_spans_say_so(server: Server, tmp_path: Path) -> None:
    old, new, (prompt,) = make_model(seed=3), make_model(seed=4), random_prompts(7)
    async with engine_of(attached(server, tmp_path)) as engine:
        trainer = Trainer()
        await trainer.publish(engine, old, 0)
        with server.slowed():
            request = make_request(prompt, 3, **LONG)
            group = asyncio.create_task(engine.generate(request))
            await running(engine, 3)
            await trainer.publish(engine, new, 1)
            assert await engine.begun(request.group_id) is None  # The server retracts by itself: no answer has come.
        for each in await group:
            assert len(each.token_ids) == 120
            assert [span.version.version for span in each.spans] == [0, 1]
            for span, model in zip(each.spans, (old, new), strict=True):
                wanted, _ = reference_logprobs(model, prompt, each.token_ids)
                np.testing.assert_allclose(
                    each.logprobs[span.start : span.end], wanted[span.start : span.end], atol=1e-5
                )
        assert engine.stats().recomputed_tokens > 0


@pytest.mark.parametrize("in_flight", ["retract", "in_place", "drain"])
async def test_no_prompt_is_continued_from_keys_and_values_of_the_old_weights(
    server: Server, tmp_path: Path, in_flight: str
) -> None:
    assert await gap_after_a_cached_prompt(server, tmp_path, in_flight, seed=1) < 1e-5


async def gap_after_a_cached_prompt(server: Server, folder: Path, in_flight: str, *, seed: int) -> float:
    """The prompt is in the server's cache, and a request that uses it still runs, when the new weights come."""
    new, (prompt,) = make_model(seed=8), random_prompts(60, seed=seed)
    async with engine_of(attached(server, folder, in_flight=in_flight)) as engine:
        trainer = Trainer()
        await trainer.publish(engine, make_model(seed=7), 0)
        await engine.generate(make_request(prompt, 2, max_tokens=5))
        with server.slowed():
            group = asyncio.create_task(engine.generate(make_request(prompt, 1, max_tokens=60)))
            await running(engine, 1)
            await trainer.publish(engine, new, 1)
        (after,) = await engine.generate(make_request(prompt, 1, max_tokens=20))
        assert [span.version.version for span in after.spans] == [1]
        await group
        return gap(new, prompt, after.token_ids, after.logprobs)


async def test_in_place_rollouts_go_on_where_they_were(server: Server, tmp_path: Path) -> None:
    async with engine_of(attached(server, tmp_path, in_flight="in_place")) as engine:
        trainer = Trainer()
        await trainer.publish(engine, make_model(seed=3), 0)
        with server.slowed():
            request = make_request([1, 2, 3], 2, **LONG)
            group = asyncio.create_task(engine.generate(request))
            await running(engine, 2)
            await trainer.publish(engine, make_model(seed=4), 1)
            assert await engine.begun(request.group_id) is None  # Its versions come with its end.
        assert all([span.version.version for span in each.spans] == [0, 1] for each in await group)
        assert engine.stats().recomputed_tokens == 0


async def test_abandoned_groups_are_aborted_on_the_server(server: Server, tmp_path: Path) -> None:
    async with engine_of(attached(server, tmp_path)) as engine:
        await Trainer().publish(engine, make_model(), 0)
        group = asyncio.create_task(engine.generate(make_request([1, 2], 3, max_tokens=4000)))
        await running(engine, 3)
        await engine.abandon("no reason", 5)
        with pytest.raises(AbandonedError, match="no reason"):
            await group
        await nothing_runs(server)


async def nothing_runs(server: Server) -> None:
    client = SGLangClient(server.url, api_key=server.api_key_file.read_text())
    try:
        async with asyncio.timeout(6):  # Left alone they would run for longer.
            while await client.loads(6) != (0, 0):
                await asyncio.sleep(0.05)
    finally:
        await client.close()


async def test_more_rollouts_than_places_take_turns_and_leave_one_for_the_canary(
    server: Server, tmp_path: Path
) -> None:
    model = make_model(seed=3)
    async with engine_of(attached(server, tmp_path, max_rows=4)) as engine:
        trainer = Trainer()
        await trainer.publish(engine, model, 0)
        with server.slowed():
            requests = [make_request([1, each], 3, max_tokens=30) for each in range(5)]
            groups = [asyncio.create_task(engine.generate(request)) for request in requests]
            await running(engine, 4)
            # On a busy machine the first group may have ended: what matters is that more wait than there are places.
            stats = engine.stats()
            assert engine.rows == stats.rollouts == 4 and 4 + stats.waiting >= stats.groups * 3 - 2
            assert await canary_gap(engine, model) < 1e-5
        assert sum(len(each.token_ids) for group in await asyncio.gather(*groups) for each in group) == 5 * 3 * 30
    async with engine_of(attached(server, tmp_path, max_rows=0)) as engine:
        assert engine.rows == (await engine._client.server_info(30))["max_running_requests"] - 1, (
            "the server's own limit"
        )


async def test_a_cut_draw_has_the_trainers_logprobs_through_aborts_and_new_weights(
    server: Server, tmp_path: Path
) -> None:
    model = make_model()
    async with engine_of(attached(server, tmp_path)) as engine:
        trainer = Trainer()
        await trainer.publish(engine, model, 0)
        cuts: list[dict[str, Any]] = [
            {"temperature": 0.7, "top_p": 0.9},
            {"top_k": 5},
            {"temperature": 1.3, "min_p": 0.2},
            {"top_k": 30, "top_p": 0.8, "min_p": 0.05},
            {"top_p": 0.9, "max_tokens": 400},  # The last: aborted, and continued.
        ]
        common = {"max_tokens": 40, "keeps_ids": True, "greedy_last": 1}
        requests = [make_request([3, 4, 5], 3, **(common | cut)) for cut in cuts]
        with server.slowed(0.005):
            running = [asyncio.create_task(engine.generate(request)) for request in requests]
            await asyncio.sleep(1)
            await engine._generation.interrupt(5)
            await asyncio.sleep(0.3)
            await trainer.publish(engine, model, 1)  # The same weights: rollouts are retracted in between.
            groups = await asyncio.gather(*running)
        for request, (*sampled, greedy) in zip(requests, groups, strict=True):
            assert greedy.kept is None
            for one in sampled:
                assert one.kept is not None
                one.kept.check("sampled", one.token_ids, np.ones(len(one.token_ids), np.bool_))
                temperature = request.sampling.temperature
                wanted, _ = reference_logprobs(model, [3, 4, 5], one.token_ids, temperature, one.kept)
                np.testing.assert_allclose(one.logprobs, wanted, atol=1e-4, rtol=0)
        assert {span.version.version for span in groups[-1][0].spans} == {0, 1}


async def test_requests_that_would_crash_the_server_are_rejected_first(server: Server, tmp_path: Path) -> None:
    async with engine_of(attached(server, tmp_path)) as engine:
        await Trainer().publish(engine, make_model(), 0)
        for prompt, changes, code in (
            ([1, VOCAB], {}, "bad_tokens"),
            ([1], {"stop_token_ids": (VOCAB,)}, "bad_tokens"),
            ([1] * 4090, {}, "context_overflow"),
        ):
            with pytest.raises(ContractError) as refused:
                await engine.generate(make_request(prompt, 1, **changes))  # type: ignore[arg-type]
            assert refused.value.code == code
        (one,) = await engine.generate(make_request([1] * 4089, 1, max_tokens=100))
        assert one.finish_reason is FinishReason.LENGTH and 1 <= len(one.token_ids) <= 7
