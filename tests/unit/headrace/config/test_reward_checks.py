"""What `[reward]`, `[discriminator]` and `[eval]` must agree on."""

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


def test_dynamic_sampling_cannot_begin_with_a_discriminator_that_knows_nothing() -> None:
    algorithm = {"algorithm": {"dynamic_sampling": True}}
    assert "would drop every group" in message(SCORER, every=1, **algorithm)
    assert config(SCORER, NUMERIC, every=1, **algorithm).algorithm.dynamic_sampling
    begun = {"discriminator": {"every": 1, "path": "/models/rm"}}
    assert config(SCORER, **begun, **algorithm).algorithm.dynamic_sampling


def test_gdpo_needs_a_reward_that_is_the_sum_of_its_components() -> None:
    gdpo = {"algorithm": {"name": "gdpo"}}
    assert config(NUMERIC, **gdpo).algorithm.advantage == "gdpo"
    tasks = {"poem": {"scorers": [NUMERIC], "combination": "min"}}
    assert "combination = 'min' does not" in message(**gdpo, reward={"scorers": [NUMERIC], "tasks": tasks})


def test_an_evaluation_must_name_an_existing_reward_component() -> None:
    labelled = NUMERIC | {"label": "right"}
    assert config(labelled, eval={"component": "right"}).eval[0].component == "right"
    assert config(labelled, eval={"component": "right.part"}).eval[0].component == "right.part"
    assert "eval.component 'numeric' is not one of the scorers: right" in message(
        labelled, eval={"component": "numeric"}
    )


RM = {"name": "reward_model", "label": "rm", "options": {"path": "/models/rm"}}


def row(tokens: int = 40, *, name: str = "sample 0", is_trained: bool = True, **columns: Any) -> PreparedRow:
    return PreparedRow(name=name, columns=columns, tokens=tokens, is_trained=is_trained)


def problem(used: RunFile, *rows: PreparedRow, context: int | None = 100) -> str:
    return rows_problem(used, rows, lambda _: context) or ""


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


def test_a_teacher_behind_an_endpoint_scores_at_temperature_one_alone() -> None:
    teacher = {"name": "teacher", "options": {"url": "http://t:30000"}}
    own = {"name": "teacher", "options": {"path": "/models/t"}}
    cold = {"rollout": {"sampling": {"temperature": 0.7, "max_tokens": 60}}}
    assert "rollout.sampling.temperature = 0.7: the endpoint of the scorer 'teacher'" in message(teacher, **cold)
    evals = {"eval": [{"name": "hard", "split": "test", "greedy": False, "temperature": 0.6}]}
    assert "eval.hard.temperature = 0.6" in message(teacher, **evals)
    assert not has_models(config(teacher, eval={"temperature": 0.6}))
    assert "'teacher' reads at most 100 tokens" in problem(config(own, **cold), row(41))
    told = own | {"options": {"path": "/models/t", "template": "$hint $prompt"}}
    assert "are its environment's: leave it out" in message(told, environment={"name": "m:e"})
