"""Checks run side by side: one that hangs or breaks fails alone, and by name."""

import threading

import pytest

from headrace.doctor.findings import Check, Finding, Level, fail, note, ok, run_checks, verdict, warn
from headrace.wire.errors import ConfigError


def hang() -> Finding:
    threading.Event().wait(300)
    return ok("hang", "late")


def break_() -> Finding:
    raise ConfigError("as told")


def test_a_check_that_hangs_or_raises_does_not_delay_the_others() -> None:
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
