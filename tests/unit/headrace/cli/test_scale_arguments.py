"""`headrace scale`: a request that makes no sense ends with status 2 and says why."""

from pathlib import Path

import pytest

from headrace.cli.app import run


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("rollout", "-1", "."), "must be 0 to 256, not -1"),
        (("rollout", "1000", "."), "must be 0 to 256, not 1000"),
        (("rollout", "two", "."), "must be a whole number, not 'two'"),
        (("trainer", "2", "."), "'trainer' cannot be scaled"),
        (("rollout", "2", "."), "no run is alive in ."),
        (("rollout", "2", "--run-dir", "nowhere"), "no run is alive in nowhere"),
        (("rollout", "2"), "say which run"),
        (("rollout",), "Missing argument 'N'"),
    ],
)
def test_a_senseless_request_is_refused(
    words: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headrace.cli.app.signal.signal", lambda *_: None)
    assert run(["scale", *words]) == 2
    assert reason in capsys.readouterr().err
