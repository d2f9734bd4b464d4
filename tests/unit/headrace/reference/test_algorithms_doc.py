"""docs/algorithms.md cannot fall behind the code."""

import re
from pathlib import Path

import pytest

from headrace.services.trainer.algorithms.kl import KL_ESTIMATORS
from headrace.services.trainer.algorithms.recipes.corrections import CORRECTIONS
from headrace.services.trainer.algorithms.registry import ADVANTAGES, POLICY_LOSSES
from headrace.services.trainer.config.algorithm import AlgorithmTable, CorrectionTable, CriticTable

DOC = (Path(__file__).parents[4] / "docs" / "algorithms.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", DOC, flags=re.MULTILINE | re.DOTALL)
CODE = {word for span in re.findall(r"`([^`]+)`", PROSE) for word in re.findall(r"[\w+]+", span)}


@pytest.mark.parametrize("table", [AlgorithmTable, CorrectionTable, CriticTable])
def test_it_names_every_key(table):
    assert not {*table.model_fields} - CODE - {"correction"}


def test_it_names_every_part():
    assert not {*ADVANTAGES, *POLICY_LOSSES, *KL_ESTIMATORS, *CORRECTIONS} - CODE - {"none"}
