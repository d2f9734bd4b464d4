"""What `[reward]`, `[discriminator]` and `[eval]` must agree on."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.config.reward_checks import PreparedRow, has_models, rows_problem
from headrace.config.schema import RunFile

SCORER = {"name": "discriminator"}
NUMERIC = {"name": "numeric"}


def config(*scorers: dict[str, Any], every: int = 0, **tables: Any) -> RunFile:
    values = {"data": {"path": "p.jsonl"}, "discriminator": {"every": every}, "reward": {"scorers": list(scorers)}}
    return RunFile.model_validate(values | tables)


def message(*scorers: dict[str, Any], every: int = 0, **tables: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        config(*scorers, every=every, **tables)
    return str(caught.value)


def test_a_discriminator_and_its_scorer_go_together() -> None:
    assert config(SCORER, every=2).discriminator.every == 2
    assert config(NUMERIC).discriminator.every == 0
    assert "that no scorer uses" in message(NUMERIC, every=2)
    assert "set discriminator.every to 1 or more" in message(NUMERIC, SCORER)
    members = {"name": "ensemble", "combination": "min", "members": [NUMERIC, SCORER]}
    assert "set discriminator.every" in message(members)
    assert config(members, every=1).discriminator.every == 1
    tasks = {"reward": {"scorers": [NUMERIC], "tasks": {"poem": {"scorers": [SCORER]}}}}
    assert "set discriminator.every" in message(**tasks)
    assert config(every=1, **tasks).discriminator.every == 1


def test_one_of_another_run_needs_no_training() -> None:
    assert config(SCORER | {"options": {"path": "/other/discriminator"}}).discriminator.every == 0


def test_other_stages_score_nothing() -> None:
    assert config(NUMERIC, every=2, run={"stage": "sft"}).run.stage == "sft"


def test_dynamic_sampling_cannot_begin_with_a_discriminator_that_knows_nothing() -> None:
    algorithm = {"algorithm": {"dynamic_sampling": True}}
    assert "would drop every group" in message(SCORER, every=1, **algorithm)
    assert config(SCORER, NUMERIC, every=1, **algorithm).algorithm.dynamic_sampling
    begun = {"discriminator": {"every": 1, "path": "/models/rm"}}
    assert config(SCORER, **begun, **algorithm).algorithm.dynamic_sampling


def test_an_evaluation_looks_at_a_component_that_there_is() -> None:
    labelled = NUMERIC | {"label": "right"}
    assert config(labelled, eval={"component": "right"}).eval.component == "right"
    assert config(labelled, eval={"component": "right.part"}).eval.component == "right.part"
    assert "eval.component = 'numeric' is none of the scorers: right" in message(
        labelled, eval={"component": "numeric"}
    )


RM = {"name": "reward_model", "label": "rm", "options": {"path": "/models/rm"}}


def row(tokens: int = 40, *, name: str = "sample 0", is_trained: bool = True, **columns: Any) -> PreparedRow:
    return PreparedRow(name=name, columns=columns, tokens=tokens, is_trained=is_trained)


def problem(used: RunFile, *rows: PreparedRow, context: int | None = 100) -> str:
    return rows_problem(used, rows, lambda _: context) or ""


def unbounded(used: RunFile, *rows: PreparedRow) -> str:
    return problem(used, *rows, context=None)


def sampled(*scorers: dict[str, Any], **tables: Any) -> RunFile:
    return config(*scorers, rollout={"sampling": {"max_tokens": 60}}, **tables)


def test_a_rollout_can_never_be_too_long_for_a_reward_model() -> None:
    assert has_models(sampled(RM)) and not has_models(sampled(NUMERIC))
    assert problem(sampled(RM), row(40)) == ""
    assert problem(sampled(RM), row(41), context=None) == ""
    assert problem(sampled(NUMERIC), row(41)) == ""
    message = problem(sampled(RM), row(30), row(43, name="sample 1"), row(41), row(42, is_trained=False))
    assert "scorer 'rm' reads at most 100 tokens; sample 1 has 43" in message
    assert "up to 60" in message and "rollout.sampling.max_tokens" in message and "data.overlong" in message
    members = {"name": "ensemble", "combination": "mean", "members": [NUMERIC, RM]}
    assert has_models(sampled(members)) and "'rm'" in problem(sampled(members), row(41))
    assert "'rm'" in problem(sampled(RM), row(41, is_trained=False))


def test_only_the_rows_that_a_model_scores_must_fit_it() -> None:
    tasks = {"reward": {"scorers": [NUMERIC], "tasks": {"chat": {"scorers": [RM]}}}}
    used = sampled(**tasks)
    assert has_models(used)
    assert problem(used, row(90), row(40, data_source="chat"), row(90, data_source="sums")) == ""
    assert "sample 0 has 41" in problem(used, row(90, name="other"), row(41, data_source="chat"))


def test_each_model_is_asked_for_its_own_context() -> None:
    asked: list[Path] = []

    def context_of(path: Path) -> int:
        asked.append(path)
        return 200

    own = {"model": {"path": "/models/policy"}}
    other = {"name": "discriminator", "label": "other", "options": {"path": "/runs/1/discriminator"}}
    assert rows_problem(sampled(RM, SCORER, other, every=1, **own), [row(answer="a")] * 2, context_of) is None
    assert asked == [Path("/models/rm"), Path("/models/policy"), Path("/runs/1/discriminator")]
    asked.clear()
    begun = {"discriminator": {"every": 1, "path": "/models/start"}}
    assert rows_problem(sampled(SCORER, **begun, **own), [row(answer="a")], context_of) is None
    assert asked == [Path("/models/start")]


def test_every_training_row_that_a_discriminator_scores_has_a_reference() -> None:
    used = config(SCORER, every=1)
    assert unbounded(used, row(answer="x"), row(answer=["x", "y"]), row(answer=7)) == ""
    assert unbounded(used, row(answer="x"), row(is_trained=False)) == ""
    for columns in ({}, {"answer": None}, {"answer": []}, {"answer": [None]}, {"label": "x"}):
        message = unbounded(used, row(answer="x"), row(name="sample 1", **columns))
        assert "discriminator.reference = 'answer'" in message and "for sample 1," in message
    named = config(SCORER, discriminator={"every": 1, "reference": "label"})
    assert unbounded(named, row(label="x")) == ""
    many = unbounded(used, *[row(name=f"s{number}") for number in range(9)])
    assert "s0, s1, s2, s3, s4 and 4 more" in many
    assert unbounded(config(SCORER | {"options": {"path": "/other/discriminator"}}), row()) == ""
    tasks = {"reward": {"scorers": [NUMERIC], "tasks": {"poem": {"scorers": [SCORER]}}}}
    assert unbounded(config(every=1, **tasks), row(), row(data_source="poem", answer="x")) == ""
    assert "sample 0" in unbounded(config(every=1, **tasks), row(data_source="poem"))
