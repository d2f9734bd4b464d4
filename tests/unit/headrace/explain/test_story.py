"""A group's life, as events and journal tell it: trained, dropped, on its way, issued and delivered again."""

from typing import Any

from rich.console import Console

from headrace.inspect.explain.gather import Gathered
from headrace.inspect.explain.names import parse_name
from headrace.inspect.explain.show import show
from headrace.inspect.explain.story import Story, build_story
from headrace.wire.api.status import RunStatus
from headrace.wire.journal import BatchRecord, DroppedRecord
from tests.status import run_status

GROUP = "demo/g00000005"
LIVE = run_status(step=2, streams={"rollouts": {"pending": 3, "undelivered": 4}})
TRACE = "00-2de6e4b1cc2d31a75c05d19540cbf5f7-8c0c395ba84f16e1-01"


def event(name: str, t: float, source: str, **more: Any) -> dict[str, Any]:
    return {"event": name, "t": t, "source": source, "group_id": GROUP, "attempt": 0, **more}


ISSUED = event("issued", 100.0, "orchestrator-a1", group_index=5, min_version=2, sample_id="s5", trace=TRACE)
GENERATED = event("group_generated", 101.0, "rollout-0-b2", trace="2de6")
SCORED = event("group_scored", 101.5, "reward-0-c3", trace="2de6")


def row(index: int, version: str = "1.2") -> dict[str, Any]:
    return {
        "rollout_index": index, "prompt": "1+1=", "completion": f"answer {index}", "reward": float(index),
        "advantage": None if index else -0.5, "components": {"exact": float(index)}, "reason": "as told",
        "finish_reason": "stop", "tokens": 3, "min_version": 2, "max_version": 2, "replica_id": "rollout-0",
        "spans": [[0, 3, version, "abcdef"]],
    }  # fmt: skip


def batch(step: int = 4) -> BatchRecord:
    names = ("demo/g00000004", GROUP)
    return BatchRecord(step=step, group_indices=(4, 5), group_ids=names, digest="d", payload="p")


def story_of(found: Gathered, status: RunStatus | None = None, name: str = "g5") -> Story:
    return build_story(parse_name(name, "demo"), found, status)


def said(story: Story) -> str:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(show(story))
    return capture.get()


def trained() -> Gathered:
    put = event("batch", 102.0, "trainer-1", step=4, group_ids=["demo/g00000004", GROUP])
    commits = [
        {"event": "publication_committed", "t": 99.0, "incarnation": 1, "version": 2, "replica_id": "rollout-0"},
        {"event": "publication_committed", "t": 104.0, "incarnation": 1, "version": 4, "replica_id": "rollout-0"},
        {"event": "publication_committed", "t": 104.5, "incarnation": 1, "version": 4, "replica_id": "rollout-1"},
    ]
    done = {4: {"event": "step_done", "t": 103.0, "step": 4}}
    events = [ISSUED, GENERATED, SCORED, put]
    return Gathered(events=events, done=done, commits=commits, batch=batch(), rollouts=[row(0), row(1)])


def test_the_story_of_a_trained_group_runs_from_its_prompt_to_the_trained_version() -> None:
    story = story_of(trained())
    assert (story.state, story.step, story.attempts, story.redeliveries) == ("trained", 4, 1, 0)
    assert story.where == "trained in step 4, place 2 of 2 in the batch"
    assert story.trace == "2de6e4b1cc2d31a75c05d19540cbf5f7" and story.sample_id == "s5" and story.prompt == "1+1="
    assert [(one.t, one.who) for one in story.life] == [
        (99.0, "rollout-0"),
        (100.0, "orchestrator"),
        (101.0, "rollout-0"),
        (101.5, "reward-0"),
        (102.0, "trainer (life 1)"),
        (103.0, "trainer"),
        (104.5, "orchestrator"),
    ]
    assert "served version 1.2" in story.life[0].what
    assert story.life[-1].what.endswith("is served by rollout-0, rollout-1")
    text = said(story)
    for part in ("prompt: 1+1=", "+1.000 s", "put in the batch of step 4, place 2 of 2", "answer 1", "-0.500", "1.2"):
        assert part in text, part


def test_a_dropped_group_says_why() -> None:
    drop = event("dropped", 105.0, "trainer-1", group_index=5, reason="stale")
    record = DroppedRecord(group_index=5, group_id=GROUP, reason="stale")
    story = story_of(Gathered(events=[ISSUED, GENERATED, SCORED, drop], dropped=record))
    assert (story.state, story.drop_reason) == ("dropped", "stale")
    assert "older than run.max_staleness" in story.where
    assert story.life[-1].what == "dropped as stale"


def test_reissues_and_redeliveries_are_counted() -> None:
    again = event("group_generated", 103.0, "rollout-1-b9")
    second = {**ISSUED, "t": 150.0, "attempt": 1}
    third = event("group_generated", 151.0, "rollout-1-b9", attempt=1)
    story = story_of(Gathered(events=[ISSUED, GENERATED, again, second, third]), LIVE)
    assert (story.attempts, story.redeliveries) == (2, 1)
    whats = [one.what for one in story.life]
    assert "delivered once more" in whats[2] and "issued again" in whats[3] and whats[4] == "generated (attempt 2)"
    text = said(story)
    assert "issued 2 times" in text and "delivered again 1 times" in text
