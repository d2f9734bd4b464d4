"""Checks run side by side: one that hangs or breaks fails alone, and by name."""

import threading
from types import SimpleNamespace

import pytest

from headrace.doctor import findings as findings_module
from headrace.doctor.findings import Check, Finding, Level, fail, note, ok, run_checks, verdict, warn
from headrace.wire.errors import ConfigError


def hang() -> Finding:
    threading.Event().wait(300)
    return ok("hang", "late")


def break_() -> Finding:
    raise ConfigError("as told")


def test_a_check_that_hangs_or_breaks_holds_nobody_up() -> None:
    checks = [
        Check(name="hang", look=hang, deadline_s=0.2, fix="pull the plug"),
        Check(name="break", look=break_),
        Check(name="fine", look=lambda: ok("fine", "well")),
    ]
    found = run_checks(checks)
    assert [(one.name, one.level) for one in found] == [
        ("hang", Level.FAIL),
        ("break", Level.FAIL),
        ("fine", Level.OK),
    ]
    assert found[0].said == "no answer within 0.2 s" and found[0].fix == "pull the plug"
    assert "as told" in found[1].said and found[1].fix


def test_checks_run_side_by_side() -> None:
    together = threading.Barrier(8)

    def meets() -> Finding:
        together.wait(60)
        return ok("meets", "all are there")

    found = run_checks([Check(name=str(number), look=meets, deadline_s=120) for number in range(8)])
    assert [one.level for one in found] == [Level.OK] * 8


def test_deadlines_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Hangs:
        """A thread that is waited for in vain, by a clock that passes only so."""

        def __init__(self, **_: object) -> None: ...

        def start(self) -> None: ...

        def join(self, timeout: float) -> None:
            now[0] += timeout

    monkeypatch.setattr(findings_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(findings_module, "threading", SimpleNamespace(Thread=Hangs))
    checks = [Check(name=str(number), look=hang, deadline_s=seconds) for number, seconds in enumerate([2, 5, 5, 3])]
    found = run_checks(checks)
    assert now == [5.0]
    assert [one.said for one in found] == [f"no answer within {seconds} s" for seconds in (2, 5, 5, 3)]


@pytest.mark.parametrize(
    ("findings", "is_ok"),
    [
        ([ok("a", "x"), note("b", "x"), warn("c", "x", "do")], True),
        ([ok("a", "x"), fail("b", "x", "do")], False),
    ],
)
def test_only_failures_fail(findings: list[Finding], is_ok: bool) -> None:
    told = verdict(findings)
    assert told["ok"] is is_ok and [row["name"] for row in told["checks"]] == [one.name for one in findings]
