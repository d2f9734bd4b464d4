"""What `[reward]`, `[discriminator]` and `[eval]` must agree on."""

from typing import Any

import pytest
from pydantic import ValidationError

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
    assert "that nobody asks" in message(NUMERIC, every=2)
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
