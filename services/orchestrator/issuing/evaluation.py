"""Evaluation on held-out prompts through the same rollout path, every N steps, bounded by a deadline."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import TypeAdapter

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.issuing.eval_result import EvalResult, count_correct, summarize
from headrace.services.orchestrator.issuing.messages import eval_prompt
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.store import Store
from headrace.wire.contracts import DropReason, Message, Purpose, ScoredGroup, Tombstone, decode_header
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.rundir.evals import EvalLog
from headrace.wire.streams import EVALUATION_FLOW, Broker, Put, StreamName
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator.evaluation")
_RESULT = TypeAdapter(EvalResult)


class Evaluation:
    """Runs one evaluation at a time; results are in the store, so it resumes after a restart."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        rows: Sequence[PromptRow],
        store: Store,
        broker: Broker,
        prompts: PromptStream,
    ) -> None:
        self._settings = settings
        self._rows = rows[: settings.eval.prompts] if settings.eval.prompts else rows
        self._store = store
        self._broker = broker
        self._prompts = prompts
        self._log = EvalLog(settings.run_dir)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.results: list[EvalResult] = [_RESULT.validate_python(row) for row in self._log.known]
        self.waiting_for = ""
        self.since, self.until = 0.0, 0.0
        """Start and deadline (monotonic seconds) of the current evaluation, or of the last one."""
        self.version = 0
        """The version being evaluated, or evaluated last."""

    @property
    def running(self) -> bool:
        """Whether an evaluation is in progress."""
        return self._task is not None and not self._task.done()

    def due(self, version: int, max_steps: int) -> bool:
        """Whether to evaluate this version: 0, every `eval.every` steps, and the last one, once each."""
        every = self._settings.eval.every
        wanted = version in (0, max_steps) or (every > 0 and version % every == 0)
        return bool(self._rows) and wanted and all(result.version != version for result in self.results)

    def start(self, version: int) -> None:
        """Starts the evaluation of `version` in the background; does nothing while one is running."""
        if not self.running:
            self.version = version
            self._task = asyncio.create_task(self._evaluate(version))

    async def finished(self, within_s: float | None = None) -> None:
        """Returns when no evaluation is running (at its deadline at the latest), or after `within_s` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    async def consume(self, stop: asyncio.Event) -> None:
        """Reads the `evaluated` stream until `stop`."""
        worker = Worker(
            self._broker,
            StreamName.EVALUATED,
            "orchestrator",
            self._take,
            service="orchestrator",
            lease_s=self._settings.broker.lease_s,
            capacity=lambda in_flight: 64 - in_flight,
            failure=DropReason.POISON,
        )
        await worker.run(stop)

    async def _take(self, message: Message) -> list[Put]:
        version = int(message.header.group_id.rpartition("/e")[2].partition("-")[0])
        prompt = message.header.group_index
        if isinstance(message.body, ScoredGroup) and _sampled_by(message.body, version):
            table = self._settings.eval
            scores = message.body.scores
            correct, total = count_correct(scores, component=table.component, above=table.correct_above)
            self._store.record_eval(version, prompt, correct, total, len(scores) - total)
        elif isinstance(message.body, Tombstone) and message.body.reason is DropReason.ABSTAINED:
            self._store.record_eval(version, prompt, 0, 0, self._settings.eval.k)
        else:
            self._store.record_eval(version, prompt, 0, 0)
        self._arrived.set()
        return []

    async def _evaluate(self, version: int) -> None:
        try:
            with metrics.EVALUATING(self._settings.eval.deadline_s):
                await self._collect(version)
        finally:
            self.waiting_for = ""
        self._close(version)

    async def _collect(self, version: int) -> None:
        """Issues the prompts and waits for their results until the deadline."""
        self.since = time.monotonic()
        self.until = deadline = self.since + self._settings.eval.deadline_s
        wanted = len(self._rows)
        life = ""
        while (done := len(self._store.eval_results(version))) < wanted and time.monotonic() < deadline:
            self.waiting_for = f"evaluation of version {version}: {done} of {wanted} prompts"
            self._arrived.clear()
            try:
                if (generation := await self._broker.generation()) != life:
                    await self._issue_missing(version)
                    life = generation
                async with asyncio.timeout(0.5):
                    await self._arrived.wait()
            except TransientError as error:
                log.warning("evaluation_waits", error=str(error))
            except TimeoutError:
                continue

    async def _issue_missing(self, version: int) -> None:
        """Issues the prompts that have neither a result nor an entry in a stream."""
        known = set(self._store.eval_results(version)) | await self._live(version)
        for prompt, row in enumerate(self._rows):
            if prompt not in known:
                message = eval_prompt(self._settings, row, prompt=prompt, version=version)
                await self._prompts.put(message)
                metrics.GROUPS_ISSUED.labels("eval").inc()

    async def _live(self, version: int) -> set[int]:
        live: set[int] = set()
        for stream in EVALUATION_FLOW:
            for data in await self._broker.live(stream):
                try:
                    header = decode_header(data)
                except ContractError:
                    continue
                if header.purpose is Purpose.EVAL and f"/e{version:06d}-" in header.group_id:
                    live.add(header.group_index)
        return live

    def _close(self, version: int) -> None:
        table = self._settings.eval
        result = summarize(version, self._store.eval_results(version), wanted=len(self._rows), k=table.k)
        self.results.append(result)
        self._log.append({**asdict(result), "t": round(time.time(), 3)})
        if result.accuracy is not None:
            metrics.EVAL_ACCURACY.set(result.accuracy)
            metrics.EVAL_VERSION.set(version)
        log.info("evaluated", **asdict(result))


def _sampled_by(scored: ScoredGroup, version: int) -> bool:
    """Whether all tokens were sampled under `version`: replicas may have updated in the meantime."""
    return all(span.version.version == version for rollout in scored.group.rollouts for span in rollout.spans)
