"""A run that is watched from outside: its traces, its trackers, and what becomes of it when those are dead."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.e2e.harness import TinyRun
from tests.otlp import Collector, Seen, collector

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STEPS = 3
LIFE = ("issue", "generate", "score", "train")
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TinyRun, Collector]]:
    """A run at its end, with a collector and a tracker that work. At staleness 0: its weights come out again."""
    tiny = TinyRun(tmp_path_factory.mktemp("watched") / "a", steps=STEPS)
    try:
        with collector() as found:
            tiny.start("--eval.prompts", "2", "--tracing.endpoint", found.url, "--trackers.use", '["tensorboard"]')
            tiny.finish()
            yield tiny, found
    finally:
        tiny.close()


def traced(tiny: TinyRun) -> dict[int, list[str]]:
    """Step -> trace ids of its groups, as the journaled messages say."""
    found: dict[int, list[str]] = {}
    for path in sorted((tiny.run_dir / "rollouts").glob("*.parquet")):
        for row in parquet.read_table(path, columns=["step", "trace_id"]).to_pylist():
            traces = found.setdefault(row["step"], [])
            if row["trace_id"] not in traces:
                traces.append(row["trace_id"])
    return found


def settled(spans: list[Seen]) -> list[Seen]:
    """Without what was handed back: prompts that come before their weights may all be with one replica at first."""
    return [span for span in spans if not span.error.startswith("HandBack: ")]


def check_group(spans: list[Seen], step: int) -> None:
    """The life of one group: all four services, in order, all under the first."""
    by_name = {span.name: span for span in spans}
    assert [span.name for span in spans if span.name in LIFE] == list(LIFE)
    assert [by_name[name].service for name in LIFE] == ["orchestrator", "rollout", "reward", "trainer"]
    issue, generate, score, train = (by_name[name] for name in LIFE)
    assert issue.parent == ""
    assert {generate.parent, score.parent, train.parent} == {issue.id}
    assert by_name["score length"].parent == score.id
    assert issue.began <= generate.began <= generate.ended <= score.began <= score.ended <= train.began
    assert train.attributes["step"] == step
    assert generate.attributes["replica"].startswith("rollout-")
    assert generate.attributes["version"] == [f"1.{step - 1}"]
    assert generate.attributes["tokens"] >= generate.attributes["rollouts"] == 4
    assert generate.attributes["queue_wait_seconds"] >= 0
    assert score.attributes["scored"] == 4
    assert len({span.id for span in spans}) == len(spans)


def check_step(found: Collector, step: int, groups: list[str]) -> None:
    """A step's own trace: waiting, training, publishing over all services, and links to its groups and back."""
    whole = next(span for span in found.spans if span.name == "step" and span.attributes["step"] == step)
    assert {trace for trace, _ in whole.links} == set(groups)
    spans = found.of_trace(whole.trace)
    ids = {span.id: span for span in spans}
    below = {span.name: span for span in spans if span.parent == whole.id}
    assert below.keys() >= {"wait for batch", "journal", "train", "snapshot"}
    assert {span.name for span in spans if span.parent == below["train"].id} >= {"advantages", "policy update"}
    publish = next(span for span in spans if span.name == "publish")
    assert ids[publish.parent].name == "snapshot"
    publication = next(span for span in spans if span.name == "publication")
    assert (publication.service, publication.parent) == ("orchestrator", publish.id)
    phases = {span.name: span for span in spans if span.parent == publication.id}
    assert list(phases) == ["prepare", "transfer", "verify", "commit"]
    for name, phase in (("prepare", "prepare"), ("receive", "transfer"), ("verify", "verify"), ("commit", "commit")):
        own = [span for span in spans if span.name == f"{name} weights"]
        # A replica that came late was brought along in a publication of its own.
        members = phases[phase].attributes["replicas"]
        assert members and sorted(span.attributes["replica"] for span in own) == sorted(members), name
        assert {span.parent for span in own} == {phases[phase].id}
    assert "send weights" in {span.name for span in spans if span.service == "trainer"}
    for trace in groups:
        train = next(span for span in found.of_trace(trace) if span.name == "train")
        assert train.links == ((whole.trace, whole.id),)


def test_one_trace_leads_from_each_prompt_to_its_step(watched: tuple[TinyRun, Collector]) -> None:
    tiny, found = watched
    traces = traced(tiny)
    assert sorted(traces) == [1, 2, 3] and all(len(groups) == 4 for groups in traces.values())
    for step, groups in traces.items():
        for trace in groups:
            check_group(settled(found.of_trace(trace)), step)
        check_step(found, step, groups)
    assert not [span for span in settled(found.spans) if span.error]


def test_an_evaluation_has_its_traces_too(watched: tuple[TinyRun, Collector]) -> None:
    _, found = watched
    issued = [span for span in found.spans if span.name == "issue" and span.attributes["purpose"] == "eval"]
    assert len(issued) == 4  # Two prompts, before the first step and after the last.
    for span in issued:
        lived = settled(found.of_trace(span.trace))
        assert [one.name for one in lived] == ["issue", "generate", "score", "score length"]


def test_a_tracker_receives_every_step_and_evaluation(watched: tuple[TinyRun, Collector]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny, _ = watched
    shown = EventAccumulator(str(tiny.run_dir / "trackers" / "tensorboard"))
    shown.Reload()
    steps = [(one.step, round(one.value, 4)) for one in shown.Scalars("train/reward_mean")]
    assert steps == [(line["step"], round(line["reward_mean"], 4)) for line in tiny.metrics()]
    assert [one.step for one in shown.Scalars("eval/accuracy")] == [0, STEPS]


@pytest.mark.long
def test_a_hanging_collector_and_an_absent_tracker_do_not_change_a_run(
    watched: tuple[TinyRun, Collector], tmp_path: Path
) -> None:
    tiny = TinyRun(tmp_path / "b", steps=STEPS)
    try:
        with collector(hangs=True) as hanging:
            tiny.start(
                *("--eval.prompts", "2", "--tracing.endpoint", hanging.url, "--trackers.use", '["wandb"]'),
                *("--trackers.wandb.url", NOBODY, "--trackers.finish_s", "1"),
            )
            tiny.finish()
    finally:
        tiny.close()
    assert tiny.check()["weights_sha256"] == watched[0].check()["weights_sha256"]
    logs = tiny.logs()
    assert "spans_not_exported" in logs and "tracker_left" in logs
