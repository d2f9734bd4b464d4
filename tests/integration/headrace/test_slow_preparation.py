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


def tiny(tmp_path: Path, old: str, new: str) -> TinyRun:
    """A run whose config has `new` in the place of `old`; its modules are to be written to `tmp_path/mod`."""
    run = TinyRun(tmp_path / "tiny")
    (tmp_path / "mod").mkdir()
    text = (run.folder / "run.toml").read_text()
    assert text.count(old) == 1
    (run.folder / "run.toml").write_text(text.replace(old, new))
    return run


def dry(run: TinyRun) -> tuple[int, str]:
    """Status of `headrace train --dry-run`, and what it wrote to stderr."""
    done = ended("train", run.folder / "run.toml", "--run-dir", run.run_dir, "--dry-run")
    return done.status, done.complaint


def with_scorer(tmp_path: Path, module: str) -> TinyRun:
    scorers = f'[reward]\npath = "{tmp_path}/mod"\n[[reward.scorers]]\nname = "mine:f"\n'
    run = tiny(tmp_path, '[[reward.scorers]]\nname = "length"\noptions = { target = 3 }\n', scorers)
    text = (run.folder / "run.toml").read_text().replace('component = "length"\n', "")
    (run.folder / "run.toml").write_text(text)
    (tmp_path / "mod" / "mine.py").write_text(module)
    return run


@pytest.mark.usefixtures("impatient")
def test_a_scorer_that_never_loads_is_shown_while_it_loads_and_named_with_its_key(
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
def test_the_terminal_shows_the_row_that_is_rendered(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "tiny")
    (run.folder / "model" / "chat_template.jinja").write_text(SLOW)
    status, said = dry(run)
    assert status in (0, 1), said  # 1: this machine lacks something that the run needs.
    shown = re.findall(
        r"^preparing the data: \d+ s so far, rendering prompts\.jsonl:(\d+) \((\d+) rows done\)$", said, re.M
    )
    assert shown, said
    assert all(int(line) == int(done) + 1 for line, done in shown)


def with_function(tmp_path: Path, module: str) -> TinyRun:
    table = f'[algorithm]\npath = "{tmp_path}/mod"\nadvantage = "alg:adv"\n[batch]'
    run = tiny(tmp_path, "[batch]", table)
    (tmp_path / "mod" / "alg.py").write_text(module)
    return run


def test_a_module_that_writes_null_and_exits_is_reported(tmp_path: Path) -> None:
    module = "import os\nos.write(2, b'null\\n')\nos._exit(1)\n"
    status, said = dry(with_function(tmp_path, module))
    assert status == 2 and "Traceback" not in said
    assert said.rstrip().endswith(
        "[algorithm] advantage: checking the algorithm's functions (alg:adv) failed (status 1): null"
    )
