"""The run.toml that train() writes says what its arguments do, and refers to functions that others can import."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import load_run, train
from headrace.api.train import scorer_tables, written_config
from headrace.config.data import DataTable
from headrace.config.resolve import resolve
from headrace.data.presets import prompt_of
from headrace.data.rows import read_rows
from headrace.wire.errors import ConfigError, DataError

REWARDS = "def right(completions, **_):\n    return [1.0 for _ in completions]\n"


def at_top(completions: list[str], **_: Any) -> list[float]:
    return [0.0 for _ in completions]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_is_the_config_of_the_arguments(here: Path) -> None:
    (here / "rewards.py").write_text(REWARDS)
    (here / "models" / "mine").mkdir(parents=True)
    values = {"run.id": "sums", "model.path": "models/mine", "model.make": {"characters": "01"}}
    scorers = scorer_tables(["rewards.py:right", "math"], [1, 0.5])
    file = written_config(values, [{"prompt": "1+1="}], scorers)
    config = resolve(file).config
    assert config.run.id == "sums" and config.model.make is not None and config.model.make.characters == "01"
    assert config.model.path == here / "models/mine" and config.reward.path == here
    assert [(one.name, one.weight) for one in config.reward.scorers] == [("trl:rewards:right", 1.0), ("math", 0.5)]
    assert Path(config.data.path) == here / "sums.rows.jsonl" and config.data.preset == "trl"
    assert json.loads(Path(config.data.path).read_text()) == {"prompt": "1+1="}


def test_a_dataset_gives_the_prompts_of_its_rows_though_its_columns_fill_absent_keys(here: Path) -> None:
    from datasets import Dataset

    def asked(arguments: dict[str, int]) -> dict[str, Any]:
        call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
        return {
            "prompt": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        }

    def prompts(dataset: Any) -> list[object]:
        file = resolve(written_config({}, dataset, {})).config.data.path
        found = [row for row in read_rows(file, subset="", split="train") if not isinstance(row, DataError)]
        return [prompt_of(row, DataTable(path="rows")).content for row in found]

    rows = [asked({"a": 1}), asked({"b": 2})]
    assert prompts(Dataset.from_list(rows)) == prompts(rows) and len(prompts(rows)) == 2


def test_a_file_of_the_users_is_never_replaced_one_of_trains_is(here: Path) -> None:
    for name in ("mine.toml", "mine.rows.jsonl"):
        (here / name).write_text("# by hand\n")
        with pytest.raises(ConfigError, match=name):
            written_config({"run.id": "mine"}, [{"prompt": "1"}], {})
        assert (here / name).read_text() == "# by hand\n"
        (here / name).unlink()
    for seed in (1, 2):
        file = written_config({"run.id": "mine", "run.seed": seed}, [{"prompt": "1"}], {})
        assert resolve(file).config.run.seed == seed


def of_cell(text: str) -> Any:
    """A function of a notebook's cell, as ipykernel compiles it."""
    module = ModuleType("__main__")
    exec(compile(text, "/tmp/ipykernel_1/2.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("kind", ["lambda", "nested", "cell", "object"])
def test_a_function_that_no_other_process_can_import_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(completions: list[str]) -> list[float]:
        return [0.0]

    cell = of_cell(REWARDS)
    given = {"lambda": lambda completions: [0.0], "nested": nested, "cell": cell.right, "object": object()}
    monkeypatch.setitem(sys.modules, "__main__", cell)
    with pytest.raises(ConfigError, match="%%writefile"):
        scorer_tables([given[kind]], None)


def test_the_reward_service_imports_the_function_that_was_given(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pack").mkdir()
    (here / "pack" / "__init__.py").write_text("from .inner import right\n")
    (here / "pack" / "inner.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(str(here))
    for function in (importlib.import_module("pack").right, at_top):
        reward = resolve(written_config({}, "rows.jsonl", scorer_tables(function, None))).config.reward
        _, module, name = reward.scorers[0].name.split(":")
        assert reward.path is not None
        program = f"import sys, importlib; sys.path.append(sys.argv[1]); importlib.import_module({module!r}).{name}"
        subprocess.run([sys.executable, "-P", "-c", program, str(reward.path)], check=True, timeout=120, cwd="/")


def test_functions_of_two_folders_are_refused(here: Path) -> None:
    (here / "other").mkdir()
    with pytest.raises(ConfigError, match="into one folder"):
        scorer_tables(["a.py:one", "other/b.py:two"], None)


def test_what_the_command_line_refuses_train_refuses_in_its_words_before_it_starts(here: Path) -> None:
    (here / "run.toml").write_text('[data]\npath = "rows.jsonl"\n')
    for settings, words in (
        ({"trainer.learning_rat": 1e-5}, 'did you mean "learning_rate"'),
        ({"max_steps": 5}, "--table.key VALUE"),
    ):
        with pytest.raises(ConfigError, match=words):
            train("run.toml", settings)
    with pytest.raises(ConfigError, match='did you mean "learning_rate"'):
        train("run.toml", trainer={"learning_rat": 1e-5})
    with pytest.raises(ConfigError, match="a config has its model"):
        train("run.toml", model="mine")
    with pytest.raises(ConfigError, match="not a run directory"):
        load_run(here)


def test_importing_the_package_imports_nothing_of_it_and_shows_the_names() -> None:
    program = "import sys, headrace; print(*sys.modules); print(*dir(headrace))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    modules, names = (set(line.split()) for line in done.stdout.splitlines())
    assert not {name for name in modules if name.startswith("headrace.")}
    assert {"Run", "load_run", "train", "HeadraceError"} <= names
