"""Scorers that do as a test says, built by the real registry, and an episode for them to score."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers import registry
from headrace.services.reward.settings import RewardTable
from tests import builders

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
        return [one if isinstance(one, Verdict) else Verdict(value=one) for one in SCRIPTS[self._key](samples)]


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


def played_sample(**changes: Any) -> Sample:
    """The builder's episode: turns that end at 1, 3 and 5, the last one in a segment of its own, but for `changes`."""
    group = builders.played_group()
    episode = group.rollouts[0].episode
    assert episode is not None
    rollout = replace(group.rollouts[0], episode=replace(episode, **changes))
    return samples_of(replace(group, rollouts=(rollout, group.rollouts[1])), "g")[0]


@asynccontextmanager
async def loaded_scorer(name: str, options: Mapping[str, Any] | None = None, **context: Any) -> AsyncIterator[Scorer]:
    """A scorer of the real registry, closed at the end."""
    scorer = registry.build_scorer(name, options or {}, Context(**{"component": "mine", **context}))
    try:
        await scorer.load()
        yield scorer
    finally:
        await scorer.close()
