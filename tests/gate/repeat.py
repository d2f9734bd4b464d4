"""Runs once more, each by itself, the failed tests that start processes: `python -m tests.gate.repeat FILE SESSIONS`.

Files that took too long are repeated too, and must be fast enough then. What passes is printed under FLAKY with its
first traceback, and forgiven; what is not repeated is a failure: tests that start no process, more than MOST tests, and
sessions of pytest that never began or did not come to their end.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gate import seconds
from tests.gate.failures import VARIABLE

MOST = 5
"""Files: more are no accident. Tests of one file may share what failed, such as a run."""
MOST_TESTS = 20
_LINES = 12
"""So many lines of the reason of each lasting failure are printed at the very end."""
_LONGEST_S = 1800
_PASSED, _FAILED = 0, 1
"""Exit statuses of pytest after which all tests have run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One test that failed, at whichever of its phases was the first to; or a file that took too long."""

    test: str
    starts_processes: bool
    text: str
    tests: tuple[str, ...] = ()
    """Those tests of a file that ran."""
    limit_s: float = float("inf")
    """What the tests of a file may take together."""

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Failure":
        """From a line of JSON."""
        limit_s = line.get("limit_s", float("inf"))
        return cls(line["test"], line["starts_processes"], line["text"], tuple(line.get("tests", ())), limit_s)


def read(file: Path, sessions: int) -> list[Failure]:
    """The failures of that many sessions; raises ValueError if they are not all that may have gone wrong."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    begun = sum("begin" in line for line in lines)
    ended = [line["end"] for line in lines if "end" in line]
    if begun != sessions or len(ended) != sessions:
        raise ValueError(f"of {sessions} sessions of pytest {begun} began and {len(ended)} came to their end")
    if any(status not in (_PASSED, _FAILED) for status in ended):
        raise ValueError(f"pytest ended with {ended}: not every test was run")
    failures: dict[str, Failure] = {}
    for line in lines:
        if "test" in line:
            failures.setdefault(line["test"], Failure.of(line))
    if not failures:
        raise ValueError("no test failed: something else did")
    return list(failures.values())


def judge(failures: Sequence[Failure], passes: Callable[[Failure], bool]) -> list[str]:
    """Repeats them and prints what it finds; returns the tests that are failures for good."""
    pure = [one.test for one in failures if not one.starts_processes]
    show("Not repeated, for they start no process", pure)
    others = [one for one in failures if one.starts_processes]
    files = {one.test.partition("::")[0] for one in others}
    if len(files) > MOST or len(others) > MOST_TESTS:
        names = [one.test for one in others]
        most = f"at most {MOST_TESTS} tests of {MOST} files are"
        show(f"Not repeated, for {len(names)} tests of {len(files)} files failed and {most}", names)
        return pure + names
    outcomes = {}
    for one in others:
        show("Once more, by itself", [one.test])
        outcomes[one.test] = passes(one)
    flaky = [one for one in others if outcomes[one.test]]
    for one in flaky:
        print(f"\nFLAKY {one.test}\nfailed once, and passed by itself. The first time:\n{one.text}")
    show("FLAKY: failed once, and passed by themselves", [one.test for one in flaky])
    return pure + [name for name, passed in outcomes.items() if not passed]


def show(what: str, tests: Sequence[str]) -> None:
    """One line each; nothing if there is none."""
    if tests:
        print(f"\n{what}:", *tests, sep="\n  ", flush=True)


def reason(text: str) -> str:
    """The end of what pytest marks as the error, or of the text if it marks nothing."""
    lines = text.splitlines()
    marked = [line for line in lines if line.startswith("E  ")] or [line for line in lines if line.strip()]
    return "\n".join(f"    {line}" for line in marked[-_LINES:])


def run_alone(one: Failure) -> bool:
    """Whether it passes, and is not skipped, in a session of its own with the environment of the suites."""
    with tempfile.TemporaryDirectory() as folder:
        names, outcome = Path(folder, "tests"), Path(folder, "outcome")
        names.write_text("".join(f"{name}\n" for name in one.tests or (one.test,)))
        # A file, for no shell then reads the brackets and quotes of a test's name.
        # `--old-file`: the environment is the suites' own. One that looks older than the checkout, as a shared one does
        # from a second checkout, would be installed into.
        make = ["make", "--old-file=.venv/.ready", "once"]
        command = ["timeout", "--kill-after=30", str(_LONGEST_S), *make, f"TESTS=@{names}"]
        environment = {**os.environ, VARIABLE: str(outcome), seconds.LIMIT: str(one.limit_s)}
        subprocess.run(command, env=environment, check=False)
        lines = outcome.read_text(encoding="utf-8").splitlines() if outcome.exists() else []
        return any(line.get("end") == _PASSED and line["passed"] for line in map(json.loads, lines))


def main(file: str, sessions: str) -> int:
    """The exit status: 0 if every failure is forgiven."""
    try:
        failures = read(Path(file), int(sessions))
    except ValueError as error:
        print(f"Nothing is repeated: {error}")
        return 1
    lasting = judge(failures, run_alone)
    # The end of the output is what is kept and read, and the tracebacks are hundreds of lines above.
    why = {one.test: reason(one.text) for one in failures}
    show("FAILED, with the reason of the first time", [f"{test}\n{why[test]}" for test in lasting])
    return int(bool(lasting))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
