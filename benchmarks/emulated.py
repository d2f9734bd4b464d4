"""Generation and training that only take their time: imported into a run's fork server, whose processes then have both.

Everything else is the run's own: services, broker, journal, publication, and the engine's weights and their proof.
The environment gives `TOKENS_S`, tokens of a row in a second (0: at once), and `STEP_S`, seconds of a step's training.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import headrace.services.rollout.engines.torch.engine as torch_engine
from headrace.services.rollout.engines.protocol import Completion, EngineStats, GenerateRequest
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.learner.leader import Leader
from headrace.services.trainer.step.step import StepOutcome
from headrace.services.trainer.timing.phases import Timed, untimed
from headrace.wire.contracts import FinishReason, PolicyVersion, VersionSpan

TOKENS_S, STEP_S = float(os.environ.get("TOKENS_S", "0")), float(os.environ.get("STEP_S", "0"))
_METRICS = ("loss", "grad_norm", "learning_rate", "skipped", "logprob_gap_max")


class EmulatedEngine(torch_engine.TorchEngine):
    """Samples nothing: a rollout has the length that its prompt forces, and holds a row for as long."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._free, self._running, self._asked, self._done = asyncio.Semaphore(self.rows), 0, 0, 0
        self._served: list[tuple[float, PolicyVersion, str]] = []

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """As the engine's, and notes since when these weights sample."""
        await super().install(version, weights_digest, timeout_s)
        self._served.append((time.monotonic(), version, weights_digest))

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """The rollouts of a group, each once it has a row."""
        return tuple(await asyncio.gather(*map(self._rollout, request.sampling.forced_lengths)))

    async def _rollout(self, length: int) -> Completion:
        self._asked += 1
        try:
            async with self._free:
                self._running += 1
                try:
                    begin = time.monotonic()
                    await asyncio.sleep(length / TOKENS_S if TOKENS_S else 0)
                finally:
                    self._running -= 1
        finally:
            self._asked -= 1
        self._done += length
        marks = [(min(max(int((at - begin) * TOKENS_S), 0), length - 1), *of) for at, *of in self._served]
        ends = [*(mark[0] for mark in marks[1:]), length]
        spans = [
            VersionSpan(start=start, end=end, version=version, weights_digest=digest)
            for (start, version, digest), end in zip(marks, ends, strict=True)
            if end > start
        ]
        return Completion(
            token_ids=np.full(length, 5, np.int32),
            logprobs=np.full(length, -0.5, np.float32),
            finish_reason=FinishReason.STOP,
            spans=tuple(spans),
        )

    def stats(self) -> EngineStats:
        """Returns the counters of the emulation."""
        return replace(
            super().stats(), rollouts=self._running, waiting=self._asked - self._running, generated_tokens=self._done
        )


def train(
    self: Leader, step: int, batch: Sequence[ReadyGroup], interrupted: Callable[[], bool], *, phases: Timed = untimed
) -> StepOutcome:
    """Changes no weight, for `STEP_S` seconds."""
    with phases("policy_update"):
        time.sleep(STEP_S)
    rollouts = [rollout for ready in batch for rollout in ready.scored.group.rollouts]
    return StepOutcome(
        metrics=dict.fromkeys(_METRICS, 0.0) | {"updates": 1.0, "kept_share": 1.0},
        advantages=(0.0,) * len(rollouts),
        token_advantages=tuple(np.zeros(len(one.token_ids), np.float32) for one in rollouts),
    )


torch_engine.TorchEngine = EmulatedEngine  # type: ignore[misc]
Leader.train = train  # type: ignore[method-assign]
