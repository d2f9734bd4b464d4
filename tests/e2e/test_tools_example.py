"""The example of an agent as it stands: two stages that hand the model on, a report of what was measured."""

import importlib.util
import json
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from tests.e2e.tools_example import EXAMPLE, SAID, trained

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_model_that_guesses_learns_to_ask_its_tools(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = trained(tmp_path_factory)
    said = (folder / SAID).read_text()
    report = module("report")
    found = report.measure(folder)
    assert json.loads(said.splitlines()[-1]) == {key: round(value, 6) for key, value in found.items()}
    assert not report.failures(found) and report.failures(found | {"right_after": 0.5})
    files = sorted((folder / "rl" / "rollouts").glob("step-*.parquet"))
    last = pq.read_table(files[-1]).to_pylist()
    # Episodes of three turns: what the tools said stands between, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in last]
    assert sum(count > 0 for count in heard) > len(last) / 2
    assert all(row["tokens"] - count == row["trained_tokens"] for row, count in zip(last, heard, strict=True))
    assert max(row["tokens"] for row in last) < 120
