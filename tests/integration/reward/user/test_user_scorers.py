"""Users' functions in real workers: whatever one does, it is its own samples' failure, and never a zero."""

import math
import tomllib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.scorer import Sample, Scorer, Verdict
from headrace.services.reward.settings import RewardTable
from headrace.wire.errors import ConfigError
from headrace.wire.process.users_code import Bug
from tests.integration.reward.endpoint.scripted import answer, scripted
from tests.reward_scorers import loaded_scorer

DOCS = Path(__file__).parents[4] / "docs" / "rewards.md"
RAISE = '        raise ValueError("it does not like this")'
MODULE = """
import math, os, sys, time

def act(completion, **columns):
    if completion == "hang":
        time.sleep(600)
    if completion == "die":
        os._exit(3)
    if completion == "raise":
        raise ValueError("it does not like this")
    if completion == "print":
        print("{\\"result\\": {\\"value\\": 9}}", flush=True)
        os.write(1, b"\\x00\\x00\\x00garbage")
        sys.stderr.write("noise")
    if completion == "mutate":
        columns["list"].append(1)
        columns.clear()
    if completion == "exit":
        sys.exit(0)
    return {"nan": math.nan, "text": "1.0", "none": None, "huge": 1e9}.get(completion, 0.25)

def strict(completion, answer):
    return float(completion == answer)

def group(prompts, completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    if "short" in texts:
        return [1.0]
    completions.clear()
    kwargs.clear()
    roles = 0.0 if isinstance(prompts[0], str) else len(prompts[0]) / 10
    return [None if text == "pass" else float(text == right) + roles for text, right in zip(texts, answer)]

def needs(completions, difficulty, **kwargs):
    return [0.0 for _ in completions]

def stateful(completions, trainer_state, **kwargs):
    return [0.0 for _ in completions]

def compute_score(data_source, solution_str, ground_truth, extra_info=None, format_score=0.0):
    if data_source != "demo":
        raise NotImplementedError(data_source)
    extra_info["seen"] = True
    return {"score": 1.0 if solution_str == ground_truth else format_score, "acc": solution_str == ground_truth}

def compute_batch(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(len(solution_strs)) for _ in solution_strs]
"""


CLIENT = """
import asyncio
import httpx

client = httpx.AsyncClient(trust_env=False)

async def asked(completion, port):
    return float((await client.get(f"http://127.0.0.1:{port}/")).status_code == 200)
"""


def loaded(folder: Path, name: str, timeout_s: float = 20.0, **options: Any) -> AbstractAsyncContextManager[Scorer]:
    (folder / "mine.py").write_text(MODULE)
    return loaded_scorer(name, options, timeout_s=timeout_s, processes=1, user_path=folder)


def samples(*texts: str, group: str = "g", **columns: Any) -> list[Sample]:
    ids = np.zeros(1, np.int32)
    return [Sample(prompt="1+1=", completion=text, columns=columns, group=group, completion_ids=ids) for text in texts]


def values(verdicts: Any) -> list[float | None]:
    return [one.value for one in verdicts]


async def test_a_plain_function_scores_and_its_misdeeds_are_failures_of_single_samples(tmp_path: Path) -> None:
    async with loaded(tmp_path, "mine:act", timeout_s=2.0) as scorer:
        texts = ["hang", "fine", "die", "raise", "print", "mutate", "exit", "none", "fine"]
        found = list(await scorer.score(samples(*texts, list=[1])))
        assert values(found) == [None, 0.25, None, None, 0.25, 0.25, None, None, 0.25]
        failed = [text for text, one in zip(texts, found, strict=True) if one.failed]
        assert failed == ["hang", "die", "raise", "exit", "none"] and "no answer within 2 s" in found[0].reason
        place = f"{tmp_path}/mine.py:{1 + MODULE.splitlines().index(RAISE)}"
        assert found[3] == Verdict.failure(f"ValueError: it does not like this ({place})", Bug("ValueError", place))
        assert found[3].bug is not None and RAISE.strip() in found[3].bug.trace and "Traceback" in found[3].bug.trace
        odd = list(await scorer.score(samples("nan", "text", "huge")))
        assert math.isnan(odd[0].value or 0) and values(odd)[1:] == ["1.0", 1e9]
        assert len(scorer.version) == 12


async def test_a_dry_run_finds_a_plain_function_that_does_not_take_the_columns(tmp_path: Path) -> None:
    async with loaded(tmp_path, "mine:strict") as scorer:
        assert scorer.problem({"answer": "2"}) is None
        assert "let it take **columns" in (scorer.problem({"answer": "2", "level": 3}) or "")
        assert "'answer'" in (scorer.problem({}) or "")
        # The reserved column is for those who ask for it.
        chat = {"answer": "2", "prompt_messages": [{"role": "user", "content": "1+1="}]}
        assert scorer.problem(chat) is None
        assert values(await scorer.score(samples("2", **chat))) == [1.0]


async def test_a_trl_function_scores_a_group_in_one_call(tmp_path: Path) -> None:
    async with loaded(tmp_path, "trl:mine:group") as scorer:
        found = list(await scorer.score(samples("2", "3", "pass", answer="2")))
        assert values(found) == [1.0, 0.0, None] and not found[2].failed
        several = [*samples("2", "short", group="a", answer="2"), *samples("2", group="b", answer="2")]
        found = list(await scorer.score(several))
        assert values(found) == [None, None, 1.0]
        assert found[0].failed and "1 scores for 2 completions" in found[0].reason
        chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1="}]
        assert values(await scorer.score(samples("2", answer="2", prompt_messages=chat))) == [1.2]


async def test_a_dry_run_reports_arguments_that_a_trl_function_misses(tmp_path: Path) -> None:
    async with loaded(tmp_path, "trl:mine:needs") as scorer:
        assert scorer.problem({"difficulty": 1}) is None
        assert scorer.problem({"answer": "2"}) == "it needs difficulty, but the row's columns are answer"
    async with loaded(tmp_path, "trl:mine:stateful") as scorer:
        assert "scorers know no trainer" in (scorer.problem({}) or "")


async def test_verls_compute_score_works_unchanged(tmp_path: Path) -> None:
    row = {"data_source": "demo", "reward_model": {"style": "rule", "ground_truth": "2"}, "extra_info": {"index": 1}}
    async with loaded(tmp_path, "verl:mine:compute_score", format_score=0.1) as scorer:
        assert scorer.problem(row) is None
        found = list(await scorer.score(samples("2", "3", **row)))
        assert values(found) == [1.0, 0.1] and found[0].parts == {"acc": 1.0}
        assert scorer.problem({"data_source": "demo"}) == "the row has neither reward_model.ground_truth nor an answer"
        assert scorer.problem({"answer": "2"}) == "the row has no data_source"
        other = list(await scorer.score(samples("2", **row | {"data_source": "other"})))
        assert other[0].failed and "NotImplementedError: other" in other[0].reason
    async with loaded(tmp_path, "verl:mine:compute_score", unknown=1) as scorer:
        assert "unknown" in (scorer.problem(row) or "")


async def test_verls_batch_form_gets_the_group(tmp_path: Path) -> None:
    row = {"data_source": "demo", "reward_model": '{"ground_truth": "2"}'}
    async with loaded(tmp_path, "verl:mine:compute_batch") as scorer:
        assert scorer.problem(row) is None
        found = await scorer.score([*samples("a", "b", group="1", **row), *samples("c", group="2", **row)])
        assert values(found) == [2.0, 2.0, 1.0]


async def test_an_async_function_may_keep_a_client_with_open_connections(tmp_path: Path) -> None:
    (tmp_path / "clients.py").write_text(CLIENT)
    async with scripted(otherwise=lambda _: answer(200)) as server, loaded(tmp_path, "clients:asked") as scorer:
        found = list(await scorer.score(samples("a", "b", "c", port=server.port)))
        assert values(found) == [1.0, 1.0, 1.0] and server.connections == 1


async def test_a_function_that_does_not_exist_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine:nothing.*has no attribute 'nothing'"):
        async with loaded(tmp_path, "verl:mine:nothing"):
            pass


async def test_each_documented_task_function_scores_only_its_own_samples(tmp_path: Path) -> None:
    section = DOCS.read_text().split("## TRL")[1].split("\n## ")[0]
    (tmp_path / "tasks.py").write_text(section.split("```python\n")[1].split("```")[0])
    told = tomllib.loads(section.split("```toml\n")[1].split("```")[0])["reward"]
    table = RewardTable.model_validate(told | {"path": tmp_path})
    rubrics = Rubrics(table, context_of(table))
    await rubrics.load()
    try:
        samples = [
            Sample(prompt="", completion=text, columns={"task": task, "answer": "4"}, group=task)
            for task, text in (("math", "4"), ("math", "5"), ("chat", "abc"), ("else", "4"))
        ]
        found = await rubrics.score(samples, patient=True)
        assert [one.value for one in found] == [1.0, 0.0, 0.25, None]
        assert found[0].components == {"trl:tasks:math_reward": 1.0}
        # It is no failure: the circuits stay closed.
        assert rubrics.trouble() is None and not any(slot.circuit.reason for slot in rubrics.slots)
    finally:
        await rubrics.close()
