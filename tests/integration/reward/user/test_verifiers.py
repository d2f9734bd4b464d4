"""Environments of the real `verifiers` package score our completions in real workers."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verifiers", reason="the extra `verifiers` is not installed")

from headrace.config.data import DataTable
from headrace.data.presets import prompt_of
from headrace.data.rows import DataRow, read_rows
from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.reward.user.verifiers import _job, serve
from headrace.wire.errors import ConfigError
from tests.reward_scorers import loaded_scorer

SUMS = """
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: str
    level: int = 1

class SumTaskConfig(vf.TaskConfig):
    tolerance: int = 0

class SumTask(vf.Task[SumData, vf.State, SumTaskConfig]):
    @vf.reward(weight=2.0)
    async def correct(self, trace: vf.Trace) -> float:
        if trace.last_reply == "raise":
            raise RuntimeError("no verdict")
        if trace.last_reply == "nan":
            return float("nan")
        return float(abs(int(trace.last_reply) - int(self.data.answer)) <= self.config.tolerance)

    @vf.reward
    async def concise(self, task, trace) -> float:
        return float(not trace.is_truncated and trace.num_output_tokens <= 2)

    @vf.metric
    async def asked(self, trace) -> float:
        assert [one.role for one in trace.messages] == ["system", "user", "assistant"], trace.messages
        assert self.data.prompt == "1+1=" and self.data.system_prompt == "Add.", self.data
        assert trace.transcript.endswith("[assistant]\\n" + trace.last_reply)
        return float(len(self.data.prompt_text) + self.data.level)

class SumConfig(vf.TasksetConfig):
    task: SumTaskConfig = SumTaskConfig()

class Sums(vf.Taskset[SumTask, SumConfig]):
    def load(self):
        raise AssertionError("a scorer needs no rows")

__all__ = ["Sums"]
"""
OTHER = """
import verifiers.v1 as vf

class BoxTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def ran(self, trace, runtime): pass

class Box(vf.Taskset[BoxTask, vf.TasksetConfig]):
    def load(self):
        return []

__all__ = ["Box"]
"""
CHAT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]


def sample(text: str, *, truncated: bool = False, **columns: Any) -> Sample:
    row = {"answer": "2", "prompt_messages": CHAT, "id": 5} | columns
    ids = np.zeros(2, np.int32)
    return Sample(
        prompt="", completion=text, columns=row, prompt_ids=ids, completion_ids=ids, truncated=truncated, group="g"
    )


async def test_a_taskset_scores_by_its_rewards_weights_and_metrics(tmp_path: Path) -> None:
    (tmp_path / "sums_env.py").write_text(SUMS)
    async with loaded_scorer("verifiers:sums_env", timeout_s=30.0, user_path=tmp_path) as scorer:
        found = await scorer.score([sample("2"), sample("3"), sample("2", truncated=True, level=5), sample("raise")])
        assert [one.value for one in found] == [3.0, 1.0, 2.0, None]
        assert found[0].parts == {"correct": 1.0, "concise": 1.0, "asked": 5.0} and found[2].parts["asked"] == 9.0
        assert found[3].failed and "no verdict" in found[3].reason
        (odd,) = await scorer.score([sample("nan")])
        assert odd.value != odd.value
        assert scorer.problem({"answer": "2"}) is None
        assert scorer.problem({"level": 2}) == "the task's data needs answer, which the row has not"


def test_a_taskset_whose_reward_needs_a_runtime_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_env.py").write_text(OTHER)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="its reward ran needs a runtime"):
        serve("other_env", "", {})


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[verifiers\]'"):
        build_scorer("verifiers:any", {}, Context(component="env"))


ROWS = """
    def load(self):
        for number in range(3):
            yield SumTask(SumData(prompt="1+1=", system_prompt="Add.", answer="2", level=number), self.config.task)
"""


def test_the_environments_rows_become_data_as_the_documentation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[4] / "docs" / "rewards.md").read_text()
    (tmp_path / "rows.py").write_text(text.split("## verifiers")[1].split("```python\n")[1].split("```")[0])
    (tmp_path / "rows_env.py").write_text(SUMS.replace(SUMS[SUMS.index("    def load") : SUMS.index("__all__")], ROWS))
    script = [sys.executable, str(tmp_path / "rows.py"), "rows_env", str(tmp_path / "rows.jsonl")]
    subprocess.run(script, check=True, timeout=120)
    rows = list(read_rows(str(tmp_path / "rows.jsonl"), subset="", split=""))
    prompts = [prompt_of(row, DataTable(path="rows.jsonl")) for row in rows if isinstance(row, DataRow)]
    assert len(prompts) == 3 and prompts[0].content == tuple(CHAT)
    monkeypatch.syspath_prepend(tmp_path)
    answer = serve("rows_env", "", {})
    found = [answer(_job(Sample(prompt="", completion="2", columns=one.columns))) for one in prompts]  # type: ignore[arg-type]
    assert [one["parts"]["asked"] for one in found] == [4.0, 5.0, 6.0]  # type: ignore[index]
