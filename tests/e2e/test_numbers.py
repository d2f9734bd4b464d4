"""The numbers of a run's rewards: two scorers, two data sources and a punishment for length, from rollout to status."""

import json
import math

import pyarrow.parquet as pq
import pytest

from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GRADED = """
def graded(completion, **_):
    return None if completion.startswith("1") else len(set(completion)) / 8
"""
SOURCES = ("book", "web")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    made = TinyRun(tmp_path_factory.mktemp("numbers") / "run", steps=4, replicas=1)
    prompts = made.folder / "prompts.jsonl"
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    lines = [json.dumps(row | {"data_source": SOURCES[number % 2]}) for number, row in enumerate(rows)]
    prompts.write_text("\n".join(lines) + "\n")
    (made.folder / "mine.py").write_text(GRADED)
    scorers = [{"name": "numeric"}, {"name": "mine:graded", "label": "graded", "weight": 0.5, "optional": True}]
    made.start(
        *(f"--reward.scorers={json.dumps(scorers)}", f"--reward.path={made.folder}", "--eval.component=numeric"),
        "--algorithm.overlong_buffer=2",
    )
    try:
        made.finish()
    finally:
        made.close()
    return made


def test_the_weighted_components_of_each_rollout_are_the_reward_that_is_trained_on(run: TinyRun) -> None:
    for line in run.metrics():
        (path,) = RunPaths(run.run_dir).rollouts.glob(f"step-{line['step']:06d}.parquet")
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            values, weights = json.loads(row["components"]), json.loads(row["weights"])
            assert {"numeric", "overlong_buffer"} <= set(values) <= set(weights)
            assert row["reward"] == pytest.approx(sum(values[name] * weights[name] for name in values), abs=1e-9)
        rewards = [row["reward"] for row in rows]
        assert line["reward_mean"] == pytest.approx(math.fsum(rewards) / len(rewards), abs=1e-9)
        assert (line["reward_min"], line["reward_max"]) == (min(rewards), max(rewards))
        weighted = [value for key, value in line.items() if key.endswith("/weighted")]
        assert math.fsum(weighted) == pytest.approx(line["reward_mean"], abs=1e-9)


def test_each_component_has_its_numbers_by_data_source_and_its_abstentions(run: TinyRun) -> None:
    lines = run.metrics()
    assert {key.split("/")[1] for line in lines for key in line if key.startswith("rewards/")} == {
        *("numeric", "numeric.no_answer", "graded", "overlong_buffer")
    }
    for line in lines:
        sources = [key for key in line if key.startswith("rewards/numeric/") and key.endswith("/mean")]
        assert set(sources) <= {f"rewards/numeric/{source}/mean" for source in SOURCES} | {"rewards/numeric/mean"}
    assert all(0 <= line["rewards/graded/abstained"] < 1 for line in lines)
    assert any(line["rewards/graded/abstained"] > 0 for line in lines)
    assert all(line["rewards/numeric/abstained"] == 0 for line in lines)
