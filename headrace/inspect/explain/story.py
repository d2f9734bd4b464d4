"""Turns the records of a group into a story: its timeline and where it is. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.inspect.explain.gather import Gathered
from headrace.inspect.explain.names import Wanted
from headrace.wire.api.status import RunStatus, StreamStatus

_REASONS = {
    "stale": "it was older than run.max_staleness allows when its batch was made",
    "uninformative": "dynamic sampling: all its rollouts have the same score, so it teaches nothing",
    "poison": "it could not be read",
    "scorer_failed": "its scorer failed again and again; see logs/reward-*.log and `headrace dead`",
    "abstained": "too few of its rollouts could be scored",
    "rollout_failed": "its generation failed again and again; see logs/rollout-*.log and `headrace dead`",
    "crash_loop": "it was delivered again and again and its consumers died; see logs/ and `headrace dead`",
    "unverified_weights": "it was sampled under weights that were never proven",
    "run_ended": "the run ended before its turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event in the life of a group."""

    t: float
    """Unix seconds."""
    who: str
    what: str


@dataclass(slots=True, kw_only=True)
class Story:
    """The result of `headrace explain`."""

    id: str
    rollout: int | None
    state: str
    """`trained`, `training`, `dropped`, `open`, `left open`, `evaluated`, `evaluating`."""
    where: str
    """Where it is, or how it ended, in one sentence."""
    step: int | None = None
    drop_reason: str = ""
    sample_id: str = ""
    prompt: str = ""
    trace: str = ""
    attempts: int = 0
    """Times it was issued."""
    redeliveries: int = 0
    """Times it was generated or scored again within an attempt: its first consumer was too slow, or died."""
    life: list[Moment] = field(default_factory=list)
    rollouts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def build_story(wanted: Wanted, found: Gathered, status: RunStatus | None) -> Story:
    """Builds the story. `status`: the orchestrator's status of a live run; None if the run is not live."""
    issued = [event for event in found.events if event["event"] == "issued"]
    first = issued[0] if issued else {}
    story = Story(
        id=wanted.group_id if wanted.rollout is None else f"{wanted.group_id}/{wanted.rollout}",
        rollout=wanted.rollout,
        state="open",
        where="",
        sample_id=str(first.get("sample_id", "")),
        trace=_trace(found.events),
        attempts=len(issued),
        redeliveries=sum(_again(found, name) for name in ("group_generated", "group_scored")),
        notes=list(found.notes),
    )
    story.rollouts = [row for row in found.rollouts if wanted.rollout in (None, row["rollout_index"])]
    if found.rollouts:
        story.prompt = str(found.rollouts[0].get("prompt") or "")
        story.sample_id = story.sample_id or str(found.rollouts[0].get("sample_id") or "")
    _end(story, wanted, found, status)
    story.life = sorted(_moments(story, wanted, found), key=lambda moment: moment.t)
    return story


def _end(story: Story, wanted: Wanted, found: Gathered, status: RunStatus | None) -> None:
    """Sets state and place from the journal if it has the group, else from the events and the live status."""
    if wanted.eval_version is not None:
        scored = any(event["event"] == "group_scored" for event in found.events)
        story.state = "evaluated" if scored else "evaluating"
        story.where = f"held-out prompt {wanted.index}, {story.state} at version {wanted.eval_version}"
    elif found.batch is not None:
        story.step = found.batch.step
        done = story.step in found.done
        place = f"{found.batch.group_ids.index(wanted.group_id) + 1} of {len(found.batch.group_ids)}"
        story.state = "trained" if done else "training"
        if done:
            story.where = f"trained in step {story.step}, place {place} in the batch"
        else:
            story.where = f"journaled in the batch of step {story.step} (place {place}), which is not done yet"
    elif found.dropped is not None:
        story.state, story.drop_reason = "dropped", found.dropped.reason
        story.where = f"dropped as {story.drop_reason}: {_REASONS.get(story.drop_reason, 'see logs/')}"
    else:
        ended = found.ends[-1] if found.ends and status is None else None
        left = ended is not None and wanted.group_id in ended.get("open_groups", ())
        story.state = "left open" if left or status is None else "open"
        story.where = _place_now(found, status)


def _place_now(found: Gathered, status: RunStatus | None) -> str:
    names = [event["event"] for event in found.events]
    streams = status.streams if status else {}
    if "group_scored" in names:
        said = "scored; it waits for a batch"
        said += f" (the next one is that of step {status.step + 1})" if status else ""
    elif "group_generated" in names:
        said = f"generated; it waits for its score{_queue(streams.get('rollouts'))}"
    else:
        is_played = streams.get("episodes") is not None
        by = "an environment worker" if is_played else "a replica"
        queue = _queue(streams.get("episodes" if is_played else "prompts"))
        said = f"issued; it waits for {by}, or one is at work on it{queue}"
    return said if status is not None else f"{said}. The run is not alive: continue it with --resume"


def _queue(stream: StreamStatus | None) -> str:
    return f" ({stream.pending} groups at work there, {stream.undelivered} wait)" if stream else ""


def _trace(events: Sequence[Mapping[str, object]]) -> str:
    for event in events:
        text = str(event.get("trace") or "")
        if text:
            return text.split("-")[1] if text.count("-") == 3 else text
    return ""


def _again(found: Gathered, name: str) -> int:
    attempts = [event.get("attempt") for event in found.events if event["event"] == name]
    return len(attempts) - len(set(attempts))


def _moments(story: Story, wanted: Wanted, found: Gathered) -> Iterator[Moment]:
    seen: set[tuple[str, object]] = set()
    for event in found.events:
        name, source = str(event["event"]), _service(str(event["source"]))
        key = (name, event.get("attempt"))
        again = " again: delivered once more, its first consumer was too slow or died" if key in seen else ""
        seen.add(key)
        yield Moment(t=float(event.get("t", 0.0)), who=source, what=_what(name, event, wanted) + again)
    if wanted.eval_version is None and story.step is not None:
        yield from _after(story.step, found)
    for version, replica, t in _versions(story, found):
        yield Moment(t=t, who=replica, what=f"served version {version}, under which it was sampled")
    for event in found.ends:
        if wanted.group_id in event.get("open_groups", ()):
            yield Moment(
                t=float(event["t"]), who="orchestrator", what=f"{event['event'].replace('_', ' ')}: it was open"
            )


def _what(name: str, event: Mapping[str, Any], wanted: Wanted) -> str:
    attempt = int(event.get("attempt") or 0)
    tried = f" (attempt {attempt + 1})" if attempt else ""
    match name:
        case "issued":
            lost = "issued again, for it was in no stream any more" if attempt else "issued"
            return f"{lost}{tried}, to be sampled under version {event.get('min_version')} or newer"
        case "group_generated":
            return f"generated{tried}"
        case "group_scored":
            return f"scored{tried}"
        case "batch":
            place = list(event["group_ids"]).index(wanted.group_id) + 1
            return f"put in the batch of step {event['step']}, place {place} of {len(event['group_ids'])}"
        case "dropped":
            return f"dropped as {event.get('reason')}"
        case _:
            return name.replace("_", " ")


def _after(step: int, found: Gathered) -> Iterator[Moment]:
    """Yields the end of the step that trained it, and the commits of its version."""
    if step in found.done:
        yield Moment(t=float(found.done[step]["t"]), who="trainer", what=f"step {step} is done: version {step}")
    commits = [event for event in found.commits if event.get("version") == step]
    if commits:
        replicas = sorted({str(event["replica_id"]) for event in commits})
        what = f"version {step}, which has learned from it, is served by {', '.join(replicas)}"
        yield Moment(t=float(commits[-1]["t"]), who="orchestrator", what=what)


def _versions(story: Story, found: Gathered) -> Iterator[tuple[str, str, float]]:
    """(version, replica, when that replica began to serve it) of all spans, each once."""
    used = {(str(span[2]), str(row["replica_id"])) for row in story.rollouts for span in row["spans"]}
    for event in found.commits:
        key = (f"{event.get('incarnation')}.{event.get('version')}", str(event.get("replica_id")))
        if key in used:
            used.discard(key)
            yield (*key, float(event["t"]))


def _service(source: str) -> str:
    """`rollout-0-af5d278c6d11c1eb` -> `rollout-0`; the trainer's suffix, its life, is kept: `trainer (life 2)`."""
    name, _, life = source.rpartition("-")
    return f"{name} (life {life})" if name == "trainer" else name or source
