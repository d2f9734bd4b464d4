"""A file of completions is scored line by line, in order; whole or not at all."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.services.reward.file_scores import score_file
from headrace.services.reward.rubric.circuit import ScorerOutageError
from headrace.services.reward.scorer import Sample, ScorerDownError
from headrace.wire.errors import DataError
from tests.reward_scorers import install, rubrics, scripted

CALLS: list[list[str]] = []


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    def number(samples: Sequence[Sample]) -> list[float]:
        CALLS.append([sample.group for sample in samples])
        return [float("nan") if sample.completion == "x" else float(sample.completion) for sample in samples]

    tries = iter(range(100))

    def slow_start(samples: Sequence[Sample]) -> list[float]:
        if next(tries) < 1:
            raise ScorerDownError("starting")
        return [1.0] * len(samples)

    CALLS.clear()
    install(monkeypatch, number=number, slow_start=slow_start)


def write(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def score(
    folder: Path, lines: Sequence[object], script: str = "number", **table: object
) -> list[dict[str, object]]:
    source, target = write(folder / "pairs.jsonl", lines), folder / "scores.jsonl"
    made = rubrics(scripted(script, range=[-1000, 1000]), **table)
    await score_file(made, source, target, concurrency=3, progress=io.StringIO())
    return [json.loads(line) for line in target.read_text().splitlines()]


async def test_the_output_keeps_the_order_and_an_abstention_is_null(tmp_path: Path) -> None:
    lines = [{"prompt": "p", "completion": str(number), "answer": "1"} for number in range(200)]
    lines[77]["completion"] = "x"
    found = await score(tmp_path, lines)
    assert [line["score"] for line in found] == [*map(float, range(77)), None, *map(float, range(78, 200))]
    assert found[3] == {"score": 3.0, "components": {"number": 3.0}, "reason": ""}
    assert "not finite" in str(found[77]["reason"])


async def test_the_samples_of_a_group_are_scored_together(tmp_path: Path) -> None:
    lines = [{"completion": "1", "group": f"g{number // 40}"} for number in range(80)]
    await score(tmp_path, lines)
    assert sorted(map(len, CALLS)) == [40, 40]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "in.jsonl:2: not JSON"),
        ("[" * 100_000, "in.jsonl:2: not JSON"),
        ('{"prompt": "p"}', "in.jsonl:2: completion"),
        ("3", "in.jsonl:2"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_is_written(tmp_path: Path, line: str, words: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"completion": "1"}\n' + line + "\n")
    with pytest.raises(DataError, match=words):
        await score_file(rubrics(scripted("number")), source, tmp_path / "o", concurrency=1, progress=io.StringIO())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]


async def test_a_scorer_that_is_down_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    source, told = write(tmp_path / "in.jsonl", [{"completion": "1"}] * 3), io.StringIO()
    await score_file(rubrics(scripted("slow_start")), source, tmp_path / "out", concurrency=1, progress=told)
    assert [json.loads(line)["score"] for line in (tmp_path / "out").read_text().splitlines()] == [1.0] * 3
    assert "slow_start is down: starting" in told.getvalue()


async def test_an_outage_ends_it_and_names_the_file_of_the_lines_already_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(1000))

    def later_down(samples: Sequence[Sample]) -> list[float]:
        if next(calls) >= 8:
            raise ScorerDownError("connection refused")
        return [1.0] * len(samples)

    install(monkeypatch, later_down=later_down)
    source = write(tmp_path / "in.jsonl", [{"completion": "1"}] * 16)
    made = rubrics(scripted("later_down"), outage_s=1.0)
    with pytest.raises(ScorerOutageError, match=r"the first 8 lines are in .*scores\.jsonl\.part"):
        await score_file(made, source, tmp_path / "scores.jsonl", concurrency=1, progress=io.StringIO())
    assert len((tmp_path / "scores.jsonl.part").read_text().splitlines()) == 8
    assert not (tmp_path / "scores.jsonl").exists()
