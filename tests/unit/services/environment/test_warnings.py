"""Abstentions by reason and length, with a warning above 5%, and time limits that break determinism."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.services.environment import metrics
from headrace.services.environment.warnings import EpisodeWarnings
from headrace.wire.contracts import FinishReason, Rollout, RolloutGroup
from headrace.wire.rundir.events import EVENTS, EventLog, read_events
from tests import builders


@pytest.fixture
def events(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path, "environment-0", "a")


def ended(reason: FinishReason, *, played: bool = True) -> Rollout:
    made = builders.played_rollout() if played else builders.lost_rollout()
    assert made.episode is not None
    error = "environment.tool_s passed" if reason.abstains else ""
    return replace(made, finish_reason=reason, episode=replace(made.episode, error=error))


def group(*reasons: FinishReason, played: bool = True) -> RolloutGroup:
    rollouts = tuple(replace(ended(one, played=played), rollout_id=f"test/g0/{n}") for n, one in enumerate(reasons))
    prompt = replace(builders.played_group().prompt, group_size=len(reasons))
    return RolloutGroup(prompt=prompt, rollouts=rollouts)


def warned_events(folder: Path) -> list[str]:
    return [str(one["event"]) for one in read_events(folder)]


def test_a_high_share_is_an_event_and_a_note(events: EventLog, tmp_path: Path) -> None:
    before = metrics.EPISODES_BY_LENGTH.labels("time", "64")._value.get()
    warnings = EpisodeWarnings(events, deterministic=False)
    warnings.take(group(*[FinishReason.STOP] * 37))
    assert warnings.notes() == [] and warned_events(tmp_path) == []
    warnings.take(group(*[FinishReason.TIME] * 3))
    (event,) = read_events(tmp_path)
    assert event["event"] == "abstentions_high" and set(EVENTS["abstentions_high"].keys) <= set(event)
    assert (event["share"], event["reasons"]) == (0.075, {"time": 3})
    assert event["lengths"] == {"64": {"episodes": 40, "abstained": 3}}
    assert warnings.notes() == [
        "7.5% of the last 40 episodes abstained (3 time): up to 64 tokens 3 of 40",
    ]
    assert metrics.EPISODES_BY_LENGTH.labels("time", "64")._value.get() == before + 3


def test_a_time_limit_breaks_determinism_and_an_error_does_not(events: EventLog, tmp_path: Path) -> None:
    warnings = EpisodeWarnings(events, deterministic=True)
    warnings.take(group(FinishReason.STOP, FinishReason.ENVIRONMENT_ERROR))
    assert warned_events(tmp_path) == []
    warnings.take(group(FinishReason.STOP, FinishReason.TIME))
    (event,) = read_events(tmp_path)
    assert event["event"] == "determinism_broken"
    assert (event["rollout_id"], event["error"]) == ("test/g0/1", "environment.tool_s passed")
    (note,) = warnings.notes()
    assert note == (
        "rollout.deterministic is broken: a time limit ended 1 episodes, the last of them test/g0/1 "
        "(environment.tool_s passed)"
    )
    EpisodeWarnings(events, deterministic=False).take(group(FinishReason.TIME))
    assert warned_events(tmp_path) == ["determinism_broken"]
