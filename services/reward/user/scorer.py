"""The service's side of a user's function: its calls go to workers, whose hanging or dying is one call's failure."""

import asyncio
import inspect
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.user.calls import signature
from headrace.services.reward.workers.errors import JobDiedError, JobError, JobTimeoutError
from headrace.services.reward.workers.pool import WorkerPool
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

PROMPT_MESSAGES = "prompt_messages"
"""Reserved column: the prompt's messages, where the data row's prompt was messages (see headrace/data/presets.py)."""
START_S = 120.0
"""Seconds that a worker may take to import the function's module."""
log = get_logger("reward.user")
_MOST_HUNG = 2
"""Calls of a group that may hang before the rest of it is not run: one may be a sample's own fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the function."""

    job: Mapping[str, object]
    positions: tuple[int, ...]
    """Positions of the samples that it scores, in its own order."""


class UserScorer(Scorer):
    """Calls a user's function in `context.processes` workers."""

    checked_by_loading = True

    def __init__(self, factory: str, arguments: Mapping[str, object], context: Context) -> None:
        """`factory` is what a worker runs (`module:factory`), called with `arguments`."""
        self._context = context
        self._module = str(arguments.get("target", "")).partition(":")[0]
        self._pool = WorkerPool(
            factory,
            processes=context.processes,
            deadline_s=context.timeout_s,
            what=context.component,
            arguments=arguments,
            path=context.user_path,
            start_s=START_S,
        )
        self._turns = asyncio.Semaphore(context.processes)
        self._waiting = 0
        self._logged: set[str] = set()
        self._signature: inspect.Signature | None = None

    async def load(self) -> None:
        """Starts the workers, each of which imports the function. Raises ConfigError."""
        try:
            await self._pool.start()
        except ConfigError as error:
            if isinstance(error.__cause__, WaitTimeoutError):
                raise ConfigError(f"{error}: {self._way_out()}") from error
            raise
        self._learn(await self._pool.run({"about": True}))

    def _way_out(self) -> str:
        """What to do about a module that does not load in time."""
        file = (self._context.user_path or Path()) / f"{self._module.replace('.', '/')}.py"
        where = str(file) if self._module and file.is_file() else f"the module {self._module}"
        return (
            f"look for what waits, or never ends, at module level in {where} (a download, a lock, a loop), and do it "
            "in the function"
        )

    async def close(self) -> None:
        """Ends the workers."""
        await self._pool.close()

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample; a call that fails is the failure of its samples. Raises ScorerDownError.

        One that passes its deadline is also the failure of its group's calls that have not begun: a group whose every
        call hangs ends with the first ones.
        """
        calls = self._calls(samples)
        hung: Counter[str | int] = Counter()
        asked = [self._call(call, samples[call.positions[0]].group or call.positions[0], hung) for call in calls]
        found = await asyncio.gather(*asked, return_exceptions=True)
        verdicts: dict[int, Verdict] = {}
        for call, some in zip(calls, found, strict=True):
            if isinstance(some, BaseException):
                raise some
            verdicts |= dict(zip(call.positions, some, strict=True))
        return [verdicts[position] for position in range(len(samples))]

    @abstractmethod
    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        """Each sample is in one of them."""

    @abstractmethod
    def _read(self, answer: Mapping[str, Any]) -> list[Verdict]:
        """What a worker answered: one verdict a sample of the call."""

    def _learn(self, about: Mapping[str, Any]) -> None:
        """Takes what a worker reports about the function."""
        self._signature = signature(about["parameters"])
        self.version = about["version"] or "1"

    async def _call(self, call: Call, group: str | int, hung: Counter[str | int]) -> list[Verdict]:
        count = len(call.positions)
        self._waiting += 1
        ahead = self._waiting // self._context.processes + 1
        try:
            # The pool bounds the work; calls ahead may hang too, and each worker that did is started anew.
            job = self._run(call.job, group, hung)
            answer = await wait_for(job, ahead * (self._context.timeout_s + START_S), self._context.component)
        except JobError as error:
            self._log_once(error)
            return [Verdict.failure(str(error), error.bug)] * count
        except (JobTimeoutError, JobDiedError, WaitTimeoutError) as error:
            return [Verdict.failure(str(error))] * count
        finally:
            self._waiting -= 1
        verdicts = self._read(answer)
        if len(verdicts) != count:
            return [Verdict.failure(f"it returned {len(verdicts)} scores for {count} completions")] * count
        return verdicts

    def _log_once(self, error: JobError) -> None:
        """Logs the whole error, with its traceback, once for each place."""
        place = error.bug.place if error.bug else error.kind
        if place not in self._logged:
            self._logged.add(place)
            trace = error.bug.trace if error.bug else f"{error.kind}: {error.message}"
            log.error("scorer_raised", scorer=self._context.component, error=str(error), traceback=trace)

    async def _run(self, job: Mapping[str, object], group: str | int, hung: Counter[str | int]) -> dict[str, object]:
        async with self._turns:
            if hung[group] >= _MOST_HUNG:
                raise JobTimeoutError(f"not run: {_MOST_HUNG} calls of its group passed {self._context.timeout_s:g} s")
            try:
                return await self._pool.run(job)
            except JobTimeoutError:
                hung[group] += 1
                raise


def verdict(value: Any, parts: Mapping[str, float] | None = None) -> Verdict:
    """Verdict on a value as the function returned it: the rubric refuses and counts values that are not numbers."""
    return Verdict.failure("it returned None") if value is None else Verdict(value=value, parts=parts or {})


def by_group(samples: Sequence[Sample]) -> list[tuple[int, ...]]:
    """Positions of the samples of each group; one without a group is alone."""
    groups: dict[str | int, list[int]] = {}
    for position, sample in enumerate(samples):
        groups.setdefault(sample.group or position, []).append(position)
    return [tuple(positions) for positions in groups.values()]


def refused(binding: inspect.Signature | None, *arguments: object, **keywords: object) -> str | None:
    """Why the function cannot be called so; None = it can, or nothing is known of it."""
    if binding is None:
        return None
    try:
        binding.bind(*arguments, **keywords)
    except TypeError as error:
        return str(error)
    return None
