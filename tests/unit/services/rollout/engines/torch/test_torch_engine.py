"""The engine behind its thread: staging, installing, pausing, giving up."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headrace.services.rollout.engines.protocol import AbandonedError, InFlight
from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ContractError
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import make_snapshot, save_weights
from tests.rollout_models import (
    make_core,
    make_model,
    make_request,
    make_silent_model,
    random_prompts,
    reference_logprobs,
    run,
    save_folder,
)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[TorchEngine]:
    made = TorchEngine(save_folder(make_model(), tmp_path / "model"), max_rows=8, context_length=128)
    yield made
    await made.close(5)


class Steps:
    """The engine takes so many decode steps and no more; commands it obeys as ever.

    Else the engine's thread may be through with a group before the test's has its next turn.
    """

    def __init__(self, engine: TorchEngine) -> None:
        core = engine._thread.core
        assert core is not None
        self._step, self.left = core.step, 0
        core.step = self._take  # type: ignore[method-assign]

    def _take(self) -> None:
        if not self.left:
            time.sleep(0.001)
            return
        self._step()
        self.left -= 1

    async def take(self, count: int) -> None:
        """Returns when they are taken: whatever was asked before is under way."""
        self.left = count
        while self.left:
            await asyncio.sleep(0.001)


async def publish(engine: TorchEngine, model: Any, folder: Path, version: int, *, timeout_s: float = 10) -> None:
    """Through the disk, into the engine."""
    await stage(engine, model, folder)
    await engine.install(PolicyVersion(incarnation=1, version=version), f"digest-{version}", timeout_s)
    await engine.resume(10)


async def stage(engine: TorchEngine, model: Any, folder: Path) -> None:
    snapshot = make_snapshot(model.named_parameters(), dtype=torch.float32)
    save_weights(folder, model.named_parameters(), {})
    digests = await engine.receive(snapshot.plan, rollout_pb2.ReceiveWeightsRequest(disk_path=str(folder)), 10)
    assert digests == [bucket.digest for bucket in snapshot.plan.buckets]


async def test_the_engine_thread_generates_the_same_tokens_as_the_core(engine: TorchEngine, tmp_path: Path) -> None:
    model = make_model()
    await publish(engine, model, tmp_path / "w", 0)
    requests = [
        make_request(prompt, 3, seed=index, max_tokens=20) for index, prompt in enumerate(random_prompts(5, 9, 14))
    ]
    found = await asyncio.gather(*(engine.generate(request) for request in requests))
    for mine, theirs in zip(run(make_core(model), requests), found, strict=True):
        assert [each.token_ids.tolist() for each in mine] == [each.token_ids.tolist() for each in theirs]
    assert engine.stats().generated_tokens == 180


async def test_without_weights_a_group_is_handed_back_and_nothing_can_be_installed(engine: TorchEngine) -> None:
    with pytest.raises(AbandonedError):
        await engine.generate(make_request([1, 2], 1))
    with pytest.raises(ContractError, match="no received weights"):
        await engine.install(PolicyVersion(incarnation=1, version=0), "d", 5)


async def test_installed_weights_pause_the_engine_until_it_is_resumed(engine: TorchEngine, tmp_path: Path) -> None:
    model = make_model()
    await stage(engine, model, tmp_path / "w")
    await engine.install(PolicyVersion(incarnation=1, version=0), "d", 5)
    group = asyncio.ensure_future(engine.generate(make_request([1, 2], 2, max_tokens=3)))
    done, _ = await asyncio.wait([group], timeout=0.2)
    assert not done
    (canary,) = random_prompts(20)
    scores = await engine.score(np.array(canary, np.int32), 5)
    np.testing.assert_allclose(scores, reference_logprobs(model, canary[:1], np.array(canary[1:]))[0], atol=1e-4)
    await engine.resume(5)
    assert len(await group) == 2


async def test_abandoned_groups_get_an_error_and_cancelled_ones_free_their_rows(
    engine: TorchEngine, tmp_path: Path
) -> None:
    await publish(engine, make_model(), tmp_path / "w", 0)
    steps = Steps(engine)
    group = asyncio.ensure_future(engine.generate(make_request([1, 2], 8, max_tokens=100)))
    await steps.take(5)
    await engine.abandon("quarantined", 5)
    with pytest.raises(AbandonedError, match="quarantined"):
        await group
    other = asyncio.ensure_future(engine.generate(make_request([1, 2], 8, max_tokens=100)))
    await steps.take(5)
    other.cancel()
    steps.left = 20  # Not enough for the cancelled one to end by itself.
    assert len(await engine.generate(make_request([1, 2], 8, max_tokens=2))) == 8


async def test_draining_ends_running_groups_under_the_old_weights(tmp_path: Path) -> None:
    folder = save_folder(make_model(), tmp_path / "model")
    engine = TorchEngine(folder, max_rows=4, context_length=200, in_flight=InFlight.DRAIN)
    await publish(engine, make_model(), tmp_path / "w0", 0)
    core, steps = engine._thread.core, Steps(engine)
    assert core is not None
    running = asyncio.ensure_future(engine.generate(make_request([1, 2], 4, max_tokens=150)))
    waiting = asyncio.ensure_future(engine.generate(make_request([3], 4, max_tokens=5)))
    await steps.take(5)
    publishing = asyncio.ensure_future(publish(engine, make_model(seed=1), tmp_path / "w1", 1, timeout_s=60))
    while core.admitting:
        assert not publishing.done()
        await asyncio.sleep(0.001)
    steps.left = 1000
    await publishing
    first, second = await running, await waiting
    assert [[span.version.version for span in each.spans] for each in first] == [[0]] * 4
    assert [[span.version.version for span in each.spans] for each in second] == [[1]] * 4
    await engine.close(5)


async def test_weights_that_do_not_fit_the_model_leave_the_old_ones(engine: TorchEngine, tmp_path: Path) -> None:
    model = make_model()
    await publish(engine, model, tmp_path / "w", 0)
    await stage(engine, make_model(hidden_size=24), tmp_path / "other")
    with pytest.raises(ContractError, match="bad_weights"):
        await engine.install(PolicyVersion(incarnation=1, version=1), "d", 5)
    (group,) = [await engine.generate(make_request([1, 2], 1, max_tokens=3))]
    assert group[0].spans[0].version.version == 0


async def test_a_failing_step_breaks_the_engine_down_and_says_why(engine: TorchEngine, tmp_path: Path) -> None:
    await publish(engine, make_model(), tmp_path / "w", 0)
    core = engine._thread.core
    assert core is not None
    core._model.cache._all = None  # type: ignore[assignment]
    group = asyncio.ensure_future(engine.generate(make_request([1, 2], 1)))
    with pytest.raises(TypeError):
        await asyncio.wait_for(engine.failed(), 5)
    group.cancel()


@pytest.mark.parametrize("tied", [False, True])
async def test_a_float32_head_gives_the_trainers_logprobs(tmp_path: Path, tied: bool) -> None:
    model = make_silent_model()
    if tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
    folder = save_folder(model, tmp_path / "model")
    prompt = np.array(random_prompts(60)[0], np.int32)
    engines, trainers = {}, {}
    for wide in (False, True):
        engine = TorchEngine(folder, dtype="bfloat16", fp32_head=wide, max_rows=4, context_length=128)
        try:
            await publish(engine, model, tmp_path / f"weights-{wide}", 0)
            engines[wide] = await engine.score(prompt, 10)
            (made,) = await engine.generate(make_request(prompt[:5].tolist(), 1, max_tokens=40))
        finally:
            await engine.close(5)
        policy = load_policy(folder, device="cpu", forward_dtype=torch.bfloat16, trainable=False, fp32_head=wide)
        trainers[wide] = trainer_logprobs(policy, prompt)
        sampled = np.abs(trainer_logprobs(policy, np.concatenate([prompt[:5], made.token_ids]))[4:] - made.logprobs)
        assert not wide or sampled.max() < 1e-4
    assert np.abs(trainers[True] - engines[True]).max() < 1e-4
    # Where only one of them has it they are apart, so the test can tell.
    assert np.abs(trainers[True] - engines[False]).max() > 1e-2
    assert np.abs(trainers[False] - engines[True]).max() > 1e-2


def trainer_logprobs(policy: Policy, token_ids: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(token_ids).long()
    places = torch.arange(len(ids) - 1)
    with torch.no_grad():
        scores = policy(ids[None, :-1], torch.zeros_like(places), places, ids[1:], torch.ones(len(places)), 64)
    found: np.ndarray = scores.logprobs.numpy()
    return found
