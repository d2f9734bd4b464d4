"""Programs as answers: the last code block of a completion is run against its row's tests, in a sandbox.

The sandbox sees the program and what a test gives it; what is expected stays here, and here the verdict is made. A
program that fails, crashes, hangs or is killed earns 0; a sandbox that fails is a failure of ours, never a 0.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from headrace.services.reward.sandbox import (
    PATIENCE,
    Limits,
    Program,
    SandboxBackend,
    SandboxError,
    Sandboxes,
    SandboxStartError,
)
from headrace.services.reward.scorer import Context, Reads, Sample, Scorer, ScorerDownError, Verdict
from headrace.services.reward.scorers.code.blocks import find_program
from headrace.services.reward.scorers.code.fusion import SandboxFusion
from headrace.services.reward.scorers.code.tests import Suite, read_suite
from headrace.services.reward.scorers.code.trial import Trial
from headrace.wire.config.settings import Table
from headrace.wire.errors import ConfigError

_COLUMNS = ("tests", "test_cases", "ground_truth", "reward_model", "input_output", "test_list", "test", "answer")
_LARGEST_PROGRAM = 1 << 20
_MIB = 1024 * 1024
_BEYOND_S = 60.0
"""Over a program's own time, for sandboxes that must be started again."""


class CodeOptions(Table):
    """Options of `code`."""

    tests: str = ""
    """The column with the tests; empty = the first that the row has of `tests`, `test_cases`, `ground_truth`,
    `reward_model` (its `ground_truth`), `input_output`, `test_list`, `test` and `answer`."""
    partial: bool = False
    """The score is the share of tests passed; false: 1 if all have passed, else 0."""
    timeout_s: float = Field(1.0, gt=0, le=60)
    """Time of one test: wall-clock time, less what it waited for a CPU. A test that is over it is the last that is run;
    the rest counts as failed."""
    total_s: float = Field(10.0, gt=0)
    """Time of all tests of one program together; the tests that are left then count as failed."""
    prelude: bool = True
    """Functions may use the names of the usual modules without importing them, as on LeetCode: `List`, `deque`."""
    memory_mb: int = Field(512, ge=64)
    """Memory of one test."""
    output_mb: int = Field(4, ge=1, le=64)
    """Longest output of one test; what goes beyond is an error of the program."""
    float_tolerance: float = Field(1e-6, ge=0)
    """Reals are equal within it, relative or absolute."""
    packages: Path | None = None
    """A folder of further packages that programs may import, e.g. of `pip install --target FOLDER numpy`."""
    url: str = ""
    """A SandboxFusion service; empty = bubblewrap on this machine."""
    api_key_file: Path | None = None
    """A file that holds the API key of that service, if it needs one."""
    retries: int = Field(2, ge=0)
    """Further tries of a request to that service."""


class CodeScorer(Scorer):
    """Runs programs, several at a time, as many as the backend has sandboxes."""

    version = "2"
    low, high = 0.0, 1.0
    reads: Reads = "answer"

    def __init__(self, options: CodeOptions, context: Context, backend: SandboxBackend) -> None:
        self._options, self._context, self._backend = options, context, backend
        self._longest_s = PATIENCE * (options.total_s + options.timeout_s) + _BEYOND_S
        self._unfinished = 0

    async def load(self) -> None:
        """Starts the sandboxes; raises ConfigError saying what to install if they cannot isolate."""
        await self._backend.start()

    async def close(self) -> None:
        """Ends the sandboxes, and the programs in them."""
        await self._backend.close()

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Why the row's tests cannot be run."""
        try:
            self._suite(columns)
        except ValueError as error:
            return str(error)
        return None

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample; raises ScorerDownError if no sandbox can be started.

        Each program has its own time, from its turn on: a slow one takes none of another's.
        """
        trials = [self._prepare(sample) for sample in samples]
        tasks = [asyncio.create_task(self._judge(trial)) for trial in trials if isinstance(trial, Trial)]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _abandon(trials, tasks)
        return [trial.verdict if isinstance(trial, Trial) else trial for trial in trials]

    def _prepare(self, sample: Sample) -> Trial | Verdict:
        try:
            suite = self._suite(sample.columns)
        except ValueError as error:
            return Verdict.failure(str(error))
        source = find_program(sample.completion)
        total = len(suite.tests)
        if not source.strip() or len(source) > _LARGEST_PROGRAM:
            words = "there is no program" if not source.strip() else "the program is longer than 1 MiB"
            return Verdict(
                value=0.0, reason=words, parts={"passed": 0.0, "tests": float(total), "no_answer": 1.0}, unasked=True
            )
        return Trial(Program(source, suite.function, self._options.prelude), suite, self._options)

    async def _judge(self, trial: Trial) -> None:
        """Every wait is bounded: the programs ahead end by their own deadlines."""
        loop = asyncio.get_running_loop()
        rounds = self._unfinished // self._context.processes + 1
        deadline = asyncio.timeout(self._longest_s * (rounds + 1))

        def start_clock() -> None:
            if not (trial.is_over or trial.is_abandoned or deadline.expired()):
                deadline.reschedule(loop.time() + self._longest_s)

        def begin() -> None:  # On a thread of the backend.
            loop.call_soon_threadsafe(start_clock)

        self._unfinished += 1
        try:
            async with deadline:
                await self._run(trial, begin)
                trial.is_over = True
        except TimeoutError:
            if not deadline.expired():
                raise
        finally:
            trial.is_abandoned = True
            self._unfinished -= 1

    async def _run(self, trial: Trial, begin: Callable[[], None]) -> None:
        inputs = [test.given for test in trial.suite.tests]
        try:
            await self._backend.run(trial.program, inputs, trial.see, begin)
        except SandboxStartError as error:
            raise ScorerDownError(f"{self._context.component}: {error}") from error
        except SandboxError as error:
            trial.failure = str(error)

    def _suite(self, columns: Mapping[str, object]) -> Suite:
        wanted = (self._options.tests,) if self._options.tests else _COLUMNS
        name = next((name for name in wanted if columns.get(name) is not None), None)
        if name is None:
            raise ValueError(f"the row has no tests: none of the columns {', '.join(wanted)}; set options.tests")
        column = columns[name]
        if isinstance(column, Mapping) and "ground_truth" in column:
            column = column["ground_truth"]
        try:
            return read_suite(column, columns)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"column {name}: {error}") from error
        except ValueError as error:
            raise ValueError(f"column {name}: {error}") from None


async def _abandon(trials: Sequence[Trial | Verdict], tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Ends what still runs; a test that is being run ends by its own deadline."""
    for trial in trials:
        if isinstance(trial, Trial):
            trial.is_abandoned = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def build(options: Mapping[str, object], context: Context) -> Scorer:
    """Raises ConfigError for options that cannot work; starts nothing yet."""
    chosen = context.options(CodeOptions, options)
    if chosen.packages is not None and not chosen.packages.is_dir():
        raise ConfigError(f"{context.component}: options.packages: there is no folder {chosen.packages}")
    limits = Limits(
        timeout_s=chosen.timeout_s,
        memory_bytes=chosen.memory_mb * _MIB,
        output_bytes=chosen.output_mb * _MIB,
    )
    if chosen.url:
        fusion = SandboxFusion(chosen.url, limits, context, api_key_file=chosen.api_key_file, retries=chosen.retries)
        return CodeScorer(chosen, context, fusion)
    return CodeScorer(chosen, context, Sandboxes(context.processes, limits, chosen.packages))
