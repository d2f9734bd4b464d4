"""TRL's multi-task pattern as the documentation shows it, in the real rubric."""

import tomllib
from pathlib import Path

from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.scorer import Sample
from headrace.services.reward.settings import RewardTable

DOCS = Path(__file__).parents[4] / "docs" / "rewards.md"


async def test_functions_that_share_the_tasks_score_each_sample_by_the_one_that_applies(tmp_path: Path) -> None:
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
