"""A part is declared once; names, keys, checks and pages are derived from that."""

import re
import typing
from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.reference.algorithm_docs import _advantages
from headrace.run.preparation.input_checks import check_input
from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.parts import ADVANTAGES, POLICY_LOSSES, Need, Part, PartOptions
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.checks import critic_problem, group_problem
from headrace.services.trainer.config.keys import CriticTable
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.algorithms.flat_rollouts import signals_of


def test_checks_and_pages_follow_the_declaration(monkeypatch, tmp_path):
    part = Part("twice", PartOptions, "advantages.baselines:rloo", Need.GROUP | Need.CRITIC)
    monkeypatch.setitem(ADVANTAGES, "twice", part)
    table = AlgorithmTable.model_validate({"advantage": "twice"})
    assert build_algorithm(table).estimate(signals_of([1.0, 0.0])).advantages.tolist() == [1.0, -1.0]
    assert table.needs_critic and not table.needs_reference and not table.greedy_last
    assert "needs a critic" in (critic_problem(table, CriticTable(enabled=False)) or "")
    assert "advantage = 'twice'" in (group_problem(table, 1) or "")
    assert group_problem(table, 2) is None
    assert (
        "| `twice` | `R` minus the mean of the others = `G / (G - 1) (R - mean_G)` |  | group, critic |"
        in _advantages()
    )
    file = Path(tmp_path / "run.toml")
    file.write_text(
        "[algorithm]\nadvantage = 'twice'\n[batch]\ngroup_size = 1\n[data]\npath = 'rows.jsonl'\n[model.make]\n"
        "[reward]\nscorers = [{ name = 'length', options = { target = 3 } }]\n"
    )
    resolved = resolve(file, arguments=[], environment={})
    with pytest.raises(ConfigError, match=r"run.toml:4: \[batch\] group_size: a group of one has no advantage"):
        check_input(resolved)


@pytest.mark.parametrize("part", [*ADVANTAGES.values(), *POLICY_LOSSES.values()], ids=lambda part: part.name)
def test_the_table_has_every_key_of_a_part_with_its_meaning(part):
    assert issubclass(AlgorithmTable, part.options)
    assert callable(part.load())
    for key, field in part.options.model_fields.items():
        assert field.description, key
        assert typing.get_origin(field.annotation) is None, f"{key} is one number, word or switch"


def test_the_schema_names_the_parts_and_lets_a_function_pass():
    for key, declared in (("advantage", ADVANTAGES), ("policy_loss", POLICY_LOSSES)):
        names, own = AlgorithmTable.model_json_schema()["properties"][key]["anyOf"]
        assert names == {"enum": [*declared]}
        assert re.search(own["pattern"], "mine:f") and not any(re.search(own["pattern"], name) for name in declared)
