"""A run as Python code sees it: what its directory tells, its policy, its end."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.generate_answer import model_answers, stream_answer
from headrace.cli.plot import plot_runs
from headrace.inspect.output import BAD_INPUT, FINISHED, STOPPED
from headrace.inspect.runs.facts import facts_of, run_state
from headrace.inspect.screen import Lines
from headrace.inspect.status import look, view_of
from headrace.operate.client import check_run_dir, find_client, is_alive
from headrace.supervisor.once import python
from headrace.supervisor.process_monitor import RunFailedError
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.evals import VERSION, evals_of
from headrace.wire.rundir.jsonl import Record
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP, steps_of

if TYPE_CHECKING:
    import pandas as pd

_LOOK_S, _STOP_S = 0.5, 60.0
_COMPLAINTS = ("error: ", "failed after ")


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG file, which a notebook shows."""

    path: Path

    def _repr_png_(self) -> bytes:
        return self.path.read_bytes()


class Run:
    """A run directory, of a live run or an ended one.

        run = load_run("runs/mine")
        run.metrics["reward_mean"].plot()
        run.generate("38+81=")

    Everything is read anew at each access.
    """

    def __init__(self, run_dir: Path, *command: str) -> None:
        """`command`: the words of the `headrace` command that runs it, which is started here.

        In a session of its own: Ctrl-C here does not reach it, and it may outlive this process. It prints to a file
        without a name: a pipe would be full while nobody reads it.
        """
        self.dir = run_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._read, self._complaint, self._ended = 0, "", FINISHED
        if command:
            self._printed = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = subprocess.Popen(
                python("headrace", *command),
                env=inherited() | {"TTY_COMPATIBLE": "0"},  # Jupyter's FORCE_COLOR would make it draw on a terminal.
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                start_new_session=True,
            )

    def __repr__(self) -> str:
        steps = f", step {facts_of(self.dir).steps}" if RunPaths(self.dir).run_toml.is_file() else ""
        return f"<Run {self.dir}: {self.status}{steps}>"

    @property
    def status(self) -> str:
        """`running`, `finished`, `stopped` or `prepared`; of a run that was started here also `failed`."""
        ended = self._process.poll() if self._process else FINISHED
        if ended is None:
            return "running"
        return run_state(self.dir) if ended in (FINISHED, STOPPED, self._ended) else "failed"

    @property
    def config(self) -> dict[str, Any]:
        """All tables, with defaults: `run.config["trainer"]["learning_rate"]`. Raises ConfigError."""
        return kept_tables(self.dir)

    @property
    def metrics(self) -> "pd.DataFrame":
        """Numbers of each step, indexed by it; docs/metrics.md has their units. Raises ConfigError without pandas."""
        return _frame([*steps_of(self.dir).values()], STEP).set_index(STEP)

    @property
    def evals(self) -> "pd.DataFrame":
        """Numbers of each evaluation, indexed by the steps done before. Raises as `metrics`."""
        return _frame(evals_of(self.dir), VERSION).set_index(VERSION).rename_axis(STEP)

    def rollouts(self, step: int | None = None) -> "pd.DataFrame":
        """Rollouts that were trained in a step, by default in the newest: `prompt`, `completion`, `reward`, `tokens`.

        Raises DataError for a step without any, ConfigError without pandas.
        """
        step = max(rollouts.files(RunPaths(self.dir).rollouts), default=0) if step is None else step
        return _frame(rollouts.read(RunPaths(self.dir).rollout_file(step), tuple(rollouts.COLUMNS)).to_pylist())

    def generate(
        self,
        prompt: str | Sequence[dict[str, object]],
        *,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        step: int | None = None,
    ) -> str:
        """The answer to a user's words, or to messages: of a live run's policy, else of the newest checkpoint.

        `max_tokens`: by default as many as there is room for; `temperature` 0 is greedy; `step`: of its checkpoint.
        Raises as `headrace generate` ends: ConfigError, ChildFailedError, TransientError.
        """
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        request = {"messages": messages, "temperature": temperature, "top_p": top_p, "stop": list(stop)}
        request |= {key: value for key, value in (("max_tokens", max_tokens), ("seed", seed)) if value is not None}
        if step is None and is_alive(self.dir):
            return "".join(stream_answer(find_client(self.dir), request))
        with model_answers(self.dir, inherited(), step=step) as answer:
            return "".join(piece["text"] for piece in answer(request))

    def plot(self) -> Picture:
        """Draws the curves into `RUN/plots`. Raises ConfigError before the first step, or without matplotlib."""
        return Picture(plot_runs([self.dir], None)[0])

    def wait(self, timeout: float | None = None) -> "Run":
        """Waits for the end, with a line a step, and returns the run. An interrupt ends the wait, not the run.

        Raises WaitTimeoutError, which is a TimeoutError, after `timeout` seconds. Of a run that was started here
        ConfigError if it was refused, RunFailedError if it failed; the message is that of the command line.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        lines = None if self._process else Lines(self.dir, lambda line: _say(f"{line}\n"))
        while self._process.poll() is None if self._process else is_alive(self.dir):
            lines.show(view_of(look(self.dir))) if lines else self._repeat()
            if time.monotonic() >= end:
                raise WaitTimeoutError(f"the run in {self.dir} to end", timeout or 0.0)
            time.sleep(_LOOK_S)
        if self._process is not None:
            self._repeat()
            self._printed.close()
            said, status = self._complaint.strip(), self._process.returncode
            if status == BAD_INPUT:
                raise ConfigError(said.removeprefix("error: "))
            if status in (FINISHED, STOPPED, self._ended):
                _say(self._complaint)
            else:
                logs = RunPaths(self.dir).logs
                raise RunFailedError(said or f"`headrace train` ended with status {status}; the logs are in {logs}")
        return self

    def stop(self, timeout: float | None = None) -> "Run":
        """Ends the run after its step, with a checkpoint, as Ctrl-C does, and waits; `train(resume=True)` continues it.

        Does nothing if it has ended. Raises as `wait` does.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._ended = -signal.SIGTERM  # Before it listens to signals.
        elif is_alive(self.dir):
            find_client(self.dir).post("/api/actions/stop", {"who": "python"}, _STOP_S)
        return self.wait(timeout)

    def _repeat(self) -> None:
        """Writes new lines of the command to stdout, but for its last words if it fails: an exception has them."""
        if self._printed.closed:
            return
        # Not `read`: the command writes at the offset that both share.
        data = os.pread(self._printed.fileno(), os.fstat(self._printed.fileno()).st_size - self._read, self._read)
        data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        for line in data.decode(errors="replace").splitlines(keepends=True):
            if self._complaint or line.startswith(_COMPLAINTS):
                self._complaint += line
            else:
                _say(line)


def load_run(run_dir: str | os.PathLike[str]) -> Run:
    """Opens a run directory: `load_run("runs/mine")`. Raises ConfigError if it is not a run directory."""
    path = Path(run_dir).resolve()
    check_run_dir(path)
    return Run(path)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _frame(rows: Sequence[Record], *columns: str) -> "pd.DataFrame":
    try:
        from pandas import DataFrame
    except ImportError:
        raise ConfigError("tables need pandas: pip install pandas") from None
    return DataFrame(rows, columns=None if rows else columns)
