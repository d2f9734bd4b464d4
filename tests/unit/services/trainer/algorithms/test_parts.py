"""A part is declared once; names, keys, checks and pages are derived from that."""

import re
import typing
from pathlib import Path

import pytest
import torch
from pydantic import Field, create_model

from headrace.config.resolve import resolve
from headrace.reference.algorithm_docs import _advantages
from headrace.run.preparation.input_checks import check_input
from headrace.services.trainer.algorithms.algorithm import Estimate, Signals
from headrace.services.trainer.algorithms.parts.baselines import NoOptions
from headrace.services.trainer.algorithms.parts.part import (
    ADVANTAGES,
    CRITIC,
    GROUP,
    POLICY_LOSSES,
    PartOptions,
    advantage,
    policy_loss,
)
from headrace.services.trainer.algorithms.parts.token_losses import PpoClip
from headrace.services.trainer.algorithms.registry import build_algorithm, declared_parts, option_classes
from headrace.services.trainer.config.algorithm import AlgorithmKeys, AlgorithmTable, CriticTable
from headrace.services.trainer.config.checks import critic_problem, group_problem
from headrace.wire.errors import ConfigError


@pytest.fixture
def declared():
    """Declarations of this test, forgotten after it."""
    before = dict(ADVANTAGES)
    yield ADVANTAGES
    ADVANTAGES.clear()
    ADVANTAGES.update(before)


def signals(rewards=(1.0, 0.0)):
    return Signals(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        group_sizes=(len(rewards),),
        baselines=None,
        lengths=torch.ones(len(rewards), dtype=torch.long),
        truncated=torch.zeros(len(rewards), dtype=torch.bool),
    )


def test_a_declared_part_needs_no_other_edit(declared, tmp_path):
    @advantage("twice", NoOptions, needs=GROUP | CRITIC)
    def twice(signals: Signals, _options: NoOptions) -> Estimate:
        """`2 R`."""
        return Estimate(advantages=2 * signals.rewards)

    table = AlgorithmTable.model_validate({"advantage": "twice"})
    assert build_algorithm(table).estimate(signals()).advantages.tolist() == [2.0, 0.0]
    assert table.needs_critic and not table.needs_reference and not table.greedy_last
    assert "needs a critic" in (critic_problem(table, CriticTable(enabled=False)) or "")
    assert "advantage = 'twice'" in (group_problem(table, 1) or "")
    assert group_problem(table, 2) is None
    assert "| `twice` | `2 R` |  | group, critic |  |" in _advantages()
    file = Path(tmp_path / "run.toml")
    file.write_text(
        "[algorithm]\nadvantage = 'twice'\n[batch]\ngroup_size = 1\n[data]\npath = 'rows.jsonl'\n"
        "[reward]\nscorers = [{ name = 'length', options = { target = 3 } }]\n"
    )
    resolved = resolve(file, arguments=[], environment={})
    with pytest.raises(ConfigError, match=r"run.toml:4: \[batch\] group_size: a group of one has no advantage"):
        check_input(resolved, has_model=False)


def test_options_reach_a_part_as_attributes_of_their_class():
    for part in declared_parts():
        assert issubclass(AlgorithmTable, part.options)
        assert set(part.keys) <= set(AlgorithmTable.model_fields)
    with pytest.raises(TypeError, match="has not the keys of PpoClip"):
        POLICY_LOSSES["ppo_clip"].bind(NoOptions())
    assert POLICY_LOSSES["ppo_clip"].options is PpoClip


def test_a_key_cannot_mean_two_things(declared):
    class Other(PartOptions):
        """Takes a name that a loss has."""

        clip_high: float = Field(3.0, gt=1)
        """Another one."""

    @advantage("other", Other)
    def other(signals: Signals, options: Other) -> Estimate:
        """`A`"""
        return Estimate(advantages=signals.rewards * options.clip_high)

    with pytest.raises(TypeError, match=r"'clip_high' has two meanings: in (Other and ClipRange|ClipRange and Other)"):
        option_classes(AlgorithmKeys)


def test_an_option_of_a_new_part_is_a_key_of_the_table(declared):
    class Scale(PartOptions):
        """A factor."""

        scale: float = Field(2.0, gt=0)
        """Factor of the reward."""

    @advantage("scaled", Scale)
    def scaled(signals: Signals, options: Scale) -> Estimate:
        """`scale R`"""
        return Estimate(advantages=signals.rewards * options.scale)

    # As `config/algorithm.py` makes its table, with the parts that there are now.
    made = create_model("made", __base__=(*reversed(option_classes(AlgorithmKeys)), AlgorithmKeys))
    found = made.model_validate({"advantage": "scaled", "scale": 3.0})
    assert build_algorithm(found).estimate(signals()).advantages.tolist() == [3.0, 0.0]


def test_a_part_is_declared_once_and_says_what_it_computes(declared):
    with pytest.raises(ValueError, match="'group' is declared twice"):

        @advantage("group", NoOptions)
        def again(signals: Signals, _options: NoOptions) -> Estimate:
            """`R`"""
            return Estimate(advantages=signals.rewards)

    with pytest.raises(ValueError, match="silent needs a docstring"):

        @policy_loss("silent", NoOptions)
        def silent(_tokens, _options):
            raise AssertionError


@pytest.mark.parametrize("part", [*ADVANTAGES.values(), *POLICY_LOSSES.values()], ids=lambda part: part.name)
def test_every_key_of_a_part_has_a_meaning(part):
    for key, field in part.options.model_fields.items():
        assert field.description, key
        assert typing.get_origin(field.annotation) is None, f"{key} is one number, word or switch"


def test_the_schema_names_the_parts_and_lets_a_function_pass():
    for key, declared in (("advantage", ADVANTAGES), ("policy_loss", POLICY_LOSSES)):
        names, own = AlgorithmTable.model_json_schema()["properties"][key]["anyOf"]
        assert names == {"enum": [*declared]}
        assert re.search(own["pattern"], "mine:f") and not any(re.search(own["pattern"], name) for name in declared)
