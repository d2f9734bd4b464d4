"""A module that never loads is refused in the service's own words: scorer, file and way out."""

from pathlib import Path

import pytest

from headrace.services.reward.scorer import Context
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.reward.user import scorer
from headrace.wire.errors import ConfigError

FORMS = {"mine:f": "mine.py", "trl:mine:f": "mine.py", "verl:mine:f": "mine.py", "package.mine:f": "package/mine.py"}


@pytest.mark.parametrize("name", FORMS)
async def test_a_module_that_hangs_as_it_is_imported_is_named_with_its_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "START_S", 4.0)
    file = tmp_path / FORMS[name]
    file.parent.mkdir(exist_ok=True)
    file.write_text("import time\ntime.sleep(10**6)\n\ndef f(completion): return 0.0\n")
    made = build_scorer(name, {}, Context(component="mine", timeout_s=20.0, processes=1, user_path=tmp_path))
    with pytest.raises(ConfigError) as error:
        await made.load()
    await made.close()
    said = str(error.value)
    assert said.startswith(
        "mine: it has not loaded within 4 s: look for what waits, or never ends, at module level in "
    )
    assert f"in {file} (a download, a lock, a loop), and do it in the function" in said and "\n" not in said


async def test_another_error_at_the_start_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise ValueError('no')\n")
    made = build_scorer("mine:f", {}, Context(component="mine", timeout_s=20.0, processes=1, user_path=tmp_path))
    with pytest.raises(ConfigError) as error:
        await made.load()
    await made.close()
    assert "look for what waits" not in str(error.value)
