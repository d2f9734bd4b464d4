"""A preparation that lasts says what it waits for and how far it is; what never ends is named with its way out."""

import re
from pathlib import Path

import pytest

from headrace.run.preparation import service_checks
from headrace.supervisor import once
from tests.e2e.harness import TinyRun
from tests.verbs import ended

HANGS = "import time\ntime.sleep(10**6)\n\ndef f(completion): return 0.0\n"
SLOW = "{% for a in range(60) %}{% for b in range(9000) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
"""About a tenth of a second on any machine of these years."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is reported almost at once."""
    monkeypatch.setattr(once, "FIRST_S", 0.1)
    monkeypatch.setattr(once, "EVERY_S", 0.1)


def dry(run: TinyRun) -> tuple[int, str]:
    """Status of `headrace train --dry-run`, and what it wrote to stderr."""
    done = ended("train", run.folder / "run.toml", "--run-dir", run.run_dir, "--dry-run")
    return done.status, done.complaint


def with_scorer(tmp_path: Path, module: str) -> TinyRun:
    """A run that is scored by a module of the user's."""
    run = TinyRun(tmp_path / "tiny")
    (tmp_path / "mod").mkdir()
    (tmp_path / "mod" / "mine.py").write_text(module)
    text = (run.folder / "run.toml").read_text().replace('component = "length"\n', "")
    old = '[[reward.scorers]]\nname = "length"\noptions = { target = 3 }\n'
    assert text.count(old) == 1
    scorers = f'[reward]\npath = "{tmp_path}/mod"\n[[reward.scorers]]\nname = "mine:f"\n'
    (run.folder / "run.toml").write_text(text.replace(old, scorers))
    return run


@pytest.mark.usefixtures("impatient")
def test_a_scorer_that_never_loads_is_reported_while_it_loads_and_named_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_checks, "_BEGIN_S", 5.0)
    monkeypatch.setattr(service_checks, "_SCORERS_S", 0.0)
    status, said = dry(with_scorer(tmp_path, HANGS))
    assert status == 2 and re.search(r"^checking the scorers \(mine:f\): \d+ s so far$", said, re.M)
    error = said.splitlines()[-1]
    assert "[reward] scorers: waited 5.0 s for checking the scorers (mine:f); look for what never ends" in error
    assert f"at module level of {tmp_path}/mod" in error


@pytest.mark.usefixtures("impatient")
def test_slow_preparation_reports_the_row_being_rendered(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "tiny")
    (run.folder / "model" / "chat_template.jinja").write_text(SLOW)
    status, said = dry(run)
    assert status in (0, 1), said  # 1: this machine lacks something that the run needs.
    shown = re.findall(
        r"^preparing the data: \d+ s so far, rendering prompts\.jsonl:(\d+) \((\d+) rows done\)$", said, re.M
    )
    assert shown, said
    assert all(int(line) == int(done) + 1 for line, done in shown)
