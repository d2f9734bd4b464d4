"""`[eval]` is one evaluation set, `[[eval]]` several: read, checked, written, and kept by a resumed run."""

from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.config.toml import to_toml
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.wire.errors import ConfigError
from tests.unit.headrace.config.test_settle import config, made, resumed

TASK = '[[reward.scorers]]\nname = "numeric"\n[[reward.tasks.exact.scorers]]\nname = "exact_match"\n'
TWO = TASK + '[[eval]]\nname = "a"\nevery = 5\n[[eval]]\nname = "b"\npath = "b.jsonl"\ntask = "exact"\n'


def test_a_single_table_is_one_set_and_options_reach_it(tmp_path: Path) -> None:
    (one,) = config(tmp_path, "--eval.every", "25", text="[eval]\nk = 2\n").config.eval
    assert (one.name, one.every, one.k, one.correct_above) == ("", 25, 2, None)
    two = config(tmp_path, text=TWO).config.eval
    assert [(one.name, one.path) for one in two] == [("a", ""), ("b", str(tmp_path / "b.jsonl"))]
    with pytest.raises(ConfigError, match=r"run.toml:\d+: \[eval\] k = 0: input should be greater"):
        config(tmp_path, text="[eval]\nk = 0\n")


def test_an_option_below_a_list_is_refused_with_the_place_of_the_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--eval.every: eval is a list, given at .*run.toml:7: change it there"):
        config(tmp_path, "--eval.every", "25", text=TWO)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[eval]]\nname = "a"\n[[eval]]\n', "several \\[\\[eval\\]\\] need a name each"),
        ('[[eval]]\nname = "a"\n[[eval]]\nname = "a"\n', "no two the same"),
        ('[eval]\nname = "rewards"\n', "mistaken for the components"),
        ('[eval]\nname = "a/b"\n', "string should match pattern"),
        ('[eval]\ntask = "math"\n', r"eval.task 'math' is not one of \[reward.tasks\]: exact"),
        ('[eval]\ntask = "exact"\ncomponent = "numeric"\n', "not one of the scorers: exact_match"),
        ('[eval]\ncolumns = {prompt = "q"}\n', "give path or split"),
        ('[eval]\nname = "a"\n[run]\nstage = "sft"\n', "is for run.stage = 'rl'"),
    ],
)
def test_sets_that_do_not_fit_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config(tmp_path, text=TASK + text)


def test_a_resumed_run_keeps_the_prompts_of_its_sets_and_may_change_how_they_are_evaluated(tmp_path: Path) -> None:
    run_dir = made(tmp_path / "run", config(tmp_path, text=TWO))
    found = resumed(config(tmp_path, text=TWO.replace("every = 5", "every = 7\nk = 3")), run_dir).eval
    assert (found[0].every, found[0].k) == (7, 3)
    with pytest.raises(ConfigError, match="a resumed run keeps the names, prompts and order of its evaluation sets"):
        resumed(config(tmp_path, text=TWO.replace("b.jsonl", "c.jsonl")), run_dir)


def test_one_set_is_written_as_older_builds_read_it_and_several_as_a_list(tmp_path: Path) -> None:
    tables = [config(tmp_path, text=text).config.model_dump(mode="json") for text in ("[eval]\nk = 2\n", TWO)]
    assert tables[0]["eval"]["k"] == 2 and [one["name"] for one in tables[1]["eval"]] == ["a", "b"]
    for table in tables:
        file = tmp_path / "again.toml"
        file.write_text(to_toml(table))
        assert resolve(file).config.eval == RunFile.model_validate(table).eval
        assert OrchestratorSettings.model_validate({**SERVICE, "eval": table["eval"]}).eval


SERVICE = {"run": {"id": "r"}, "run_dir": "/r"}
