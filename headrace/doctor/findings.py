"""Results of checks, and the runner: checks run concurrently, none is held up by another."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.supervisor.once import child_environment, run_once
from headrace.wire.errors import HeadraceError


class Level(StrEnum):
    """Severity."""

    OK = "ok"
    NOTE = "note"
    """Absent, and not needed here."""
    WARN = "warn"
    """It works, but something will be slow, or missing later."""
    FAIL = "fail"
    """The run cannot work, or not as configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check."""

    name: str
    level: Level
    said: str
    fix: str = ""
    """What to do; never empty with WARN and FAIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    look: Callable[[], Finding]
    deadline_s: float = 20.0
    fix: str = ""
    """The fix if the check itself times out or raises."""


def ok(name: str, said: str) -> Finding:
    """A finding without a problem."""
    return Finding(name=name, level=Level.OK, said=said)


def note(name: str, said: str) -> Finding:
    """A finding about something absent that is not needed here."""
    return Finding(name=name, level=Level.NOTE, said=said)


def warn(name: str, said: str, fix: str) -> Finding:
    """A finding that something will be slow, or missing later."""
    return Finding(name=name, level=Level.WARN, said=said, fix=fix)


def fail(name: str, said: str, fix: str) -> Finding:
    """A finding that the run cannot work, or not as configured."""
    return Finding(name=name, level=Level.FAIL, said=said, fix=fix)


def ask_child(what: str, argv: Sequence[str], environment: Mapping[str, str], seconds: float) -> dict[str, Any] | str:
    """The JSON object that a command prints, or the last line of its error if it prints none in time."""
    env = child_environment(dict(environment), threads=1)
    try:
        text = run_once(what, argv, env=env, log=None, timeout_s=seconds)
        found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    except (HeadraceError, OSError, ValueError, IndexError) as error:
        return str(error).strip().splitlines()[-1]
    return found


def run_checks(checks: Sequence[Check]) -> list[Finding]:
    """All findings, in the order of the checks; one that has not come back by its deadline fails."""
    found: dict[int, Finding] = {}

    def work(number: int, check: Check) -> None:
        found[number] = _look(check)

    # Daemons: a driver that hangs must not keep this process alive.
    threads = [
        threading.Thread(target=work, args=(number, check), name=f"doctor-{check.name}", daemon=True)
        for number, check in enumerate(checks)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread, check in zip(threads, checks, strict=True):
        thread.join(max(0.0, began + check.deadline_s - time.monotonic()))
    return [found.get(number) or _late(check) for number, check in enumerate(checks)]


def _look(check: Check) -> Finding:
    try:
        return check.look()
    except (HeadraceError, OSError, ValueError, ImportError, RuntimeError, subprocess.SubprocessError) as error:
        return fail(check.name, f"the check broke: {type(error).__name__}: {error}", check.fix or _REPORT)


def _late(check: Check) -> Finding:
    return fail(check.name, f"no answer within {check.deadline_s:g} s", check.fix or _REPORT)


_REPORT = "look at the system's log (dmesg), and run `headrace doctor` once more on an idle machine"


def verdict(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as JSON values for scripts; `ok` is False if any check fails."""
    rows = [{"name": one.name, "level": str(one.level), "said": one.said, "fix": one.fix} for one in findings]
    return {"ok": all(one.level is not Level.FAIL for one in findings), "checks": rows}
