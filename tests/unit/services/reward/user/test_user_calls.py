"""The worker's side of users' functions: how they are called, and what becomes of what they return."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.user.calls import about, find
from headrace.services.reward.user.child import plain, trl, verl
from headrace.wire.errors import ConfigError

MODULE = """
import math
import numpy as np

def length(completion, answer, scale=1.0):
    return len(completion) * scale

async def slow(completion, **columns):
    return 0.5

def equal(completion, answer, **columns):
    return completion == answer

def seen(**given):
    seen.given = given
    return [1.0 for _ in given["completions"]]

async def some(completions, **kwargs):
    return [None if text == "" else float(len(text)) for text in completions]

def logging(completions, log_metric, log_extra):
    log_metric("share", np.float32(0.5))
    log_metric(name="word", value="no number")
    log_extra("column", ["x"])
    return np.ones(len(completions), np.float32)

def no_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"reward": 1.0}

class Odd:
    def item(self, which):
        return which

ODD = {"len": 10**400, "nan": math.nan, "inf": math.inf, "text": "1.0", "list": [1], "none": None,
       "array": np.ones(3), "odd": Odd(), "fine": np.float32(0.5), 7: True}

def odd_parts(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": 1.0, **ODD}

def odd_metrics(completions, log_metric, log_extra):
    for name, value in ODD.items():
        log_metric(name, value)
    return [1.0 for _ in completions]

number = 7
"""


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_functions.py").write_text(MODULE)
    (folder / "user_broken.py").write_text("import nowhere_to_be_found")
    (folder / "user_raises.py").write_text("raise RuntimeError('at import')")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def job(**others: Any) -> dict[str, Any]:
    return {"prompts": ["a", "a"], "completions": ["x", ""], "completion_ids": [[1], [2]], "columns": {}} | others


def test_a_plain_function_gets_columns_and_options_as_keywords() -> None:
    answer = plain.serve("user_functions:length")
    assert answer({"completion": "four", "keywords": {"answer": "x", "scale": 2.0}}) == {"value": 8.0}


def test_async_functions_are_awaited_and_booleans_become_numbers() -> None:
    assert plain.serve("user_functions:slow")({"completion": "", "keywords": {}}) == {"value": 0.5}
    equal = plain.serve("user_functions:equal")
    found = equal({"completion": "a", "keywords": {"answer": "a"}})["value"]
    assert found == 1.0 and type(found) is float


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("user_absent:f", r"user_absent:f: No module named 'user_absent'; put the folder .* into reward.path"),
        ("user_functions:absent", "has no attribute 'absent'"),
        ("user_functions:number", "is not a function"),
        ("user_broken:f", "nowhere_to_be_found"),
        ("user_raises:f", "user_raises:f: RuntimeError: at import"),
        ("user_functions", "write module:function"),
    ],
)
def test_an_unloadable_function_is_named_with_a_fix(target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find(target)


def test_the_version_follows_the_source(tmp_path: Path) -> None:
    one = about(find("user_functions:length"))
    assert one["version"] == about(find("user_functions:equal"))["version"] != ""
    assert about(math.sin)["version"] == ""


def test_trl_functions_get_lists_without_the_trainers_state() -> None:
    serve = trl.serve("user_functions:seen", {"option": 3})
    serve(job(columns={"answer": ["1", "1"]}))
    given = find("user_functions:seen").given  # type: ignore[attr-defined]
    assert given.keys() == {
        "prompts", "completions", "completion_ids", "answer", "option", "log_extra", "log_metric",
    }  # fmt: skip
    assert given["answer"] == ["1", "1"] and given["completion_ids"] == [[1], [2]]
    serve(job(completion_ids=None))
    assert "completion_ids" not in find("user_functions:seen").given  # type: ignore[attr-defined]


def test_a_trl_function_may_be_async_and_return_none() -> None:
    assert trl.serve("user_functions:some", {})(job())["values"] == [1.0, None]


def test_trl_functions_get_only_their_parameters_and_their_metrics_are_kept() -> None:
    found = trl.serve("user_functions:logging", {})(job(columns={"answer": [1, 1]}))
    assert found == {"values": [1.0, 1.0], "metrics": {"share": 0.5}}


def test_side_values_that_are_not_finite_numbers_leave_the_score() -> None:
    keywords = {"data_source": "s", "solution_str": "4", "ground_truth": "4"}
    found = verl.serve("user_functions:odd_parts")({"keywords": keywords})
    assert found == {"scores": [{"score": 1.0, "parts": {"fine": 0.5, "7": 1.0}}]}
    with pytest.raises(KeyError, match="no 'score', only reward"):
        verl.serve("user_functions:no_score")({"keywords": keywords})
    found = trl.serve("user_functions:odd_metrics", {})(job())
    assert found == {"values": [1.0, 1.0], "metrics": {"fine": 0.5, "7": 1.0}}
