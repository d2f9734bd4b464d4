"""docs/algorithms.md cannot fall behind the code."""

import re
from pathlib import Path

import pytest

from headrace.reference.algorithm_docs import written
from headrace.reference.algorithms import as_markdown, describe
from headrace.services.trainer.algorithms.names import KL_ESTIMATORS
from headrace.services.trainer.algorithms.options import CorrectionTable
from headrace.services.trainer.algorithms.recipes.corrections import CORRECTIONS
from headrace.services.trainer.algorithms.registry import ADVANTAGES, POLICY_LOSSES
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.keys import CriticTable

ROOT = Path(__file__).parents[4]
DOC = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", DOC, flags=re.MULTILINE | re.DOTALL)
CODE = {word for span in re.findall(r"`([^`]+)`", PROSE) for word in re.findall(r"[\w+]+", span)}


def test_its_tables_are_those_of_what_is_declared():
    assert written(DOC) == DOC, "run make generate"
    assert as_markdown(describe()) in DOC
    with pytest.raises(ValueError, match="has no <!-- policy losses -->"):
        written(DOC.replace("<!-- policy losses -->", ""))


@pytest.mark.parametrize("table", [AlgorithmTable, CorrectionTable, CriticTable])
def test_it_names_every_key(table):
    assert not {*table.model_fields} - CODE - {"correction"}


def test_it_names_every_part():
    assert not {*ADVANTAGES, *POLICY_LOSSES, *KL_ESTIMATORS, *CORRECTIONS} - CODE - {"none"}
