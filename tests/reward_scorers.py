"""Scorers that do as a test says, built by the real registry."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers import registry
from headrace.services.reward.settings import RewardTable

Script = Callable[[Sequence[Sample]], Sequence[Any]]
SCRIPTS: dict[str, Script] = {}


class Scripted(Scorer):
    """Says what its script says; a script may raise."""

    low, high = -10.0, 10.0

    def __init__(self, key: str, seconds: float) -> None:
        self.version = f"{key}@1"
        self.calls = 0
        self._key, self._seconds = key, seconds

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        self.calls += 1
        await asyncio.sleep(self._seconds)
        return [
            one if isinstance(one, Verdict) or one == "nothing" else Verdict(value=one)
            for one in SCRIPTS[self._key](samples)
        ]


def build(options: Mapping[str, Any], context: Context) -> Scorer:
    return Scripted(options["script"], options.get("seconds", 0.0))


def install(monkeypatch: pytest.MonkeyPatch, **scripts: Script) -> None:
    """Makes `name = "scripted"` known, with these scripts."""
    monkeypatch.setitem(registry.BUILT_IN, "scripted", "tests.reward_scorers:build")
    for key, script in scripts.items():
        monkeypatch.setitem(SCRIPTS, key, script)


def scripted(key: str, **table: Any) -> dict[str, Any]:
    """One `[[reward.scorers]]` of that script."""
    options = {"script": key, **table.pop("options", {})}
    return {"name": "scripted", "label": key, "options": options, **table}


def rubrics(*scorers: dict[str, Any], **table: Any) -> Rubrics:
    settings = RewardTable.model_validate({"scorers": scorers, **table})
    return Rubrics(settings, context_of(settings))
