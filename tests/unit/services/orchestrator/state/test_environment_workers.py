"""What is known of environment workers: their episodes by how long they wait, until their lease has ended."""

from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.wire.v1 import orchestrator_pb2 as pb


def report(
    worker: str = "environment-0", *episodes: tuple[str, int, str, float], slots: int = 8
) -> pb.ReportEpisodesRequest:
    words = {"tool": "the tools search", "engine": "turn 1 of the policy", "slot": "a free slot", "weights": "weights"}
    made = [
        pb.EpisodeInHand(id=name, group_index=index, kind=kind, waits_for=words[kind], seconds=seconds)
        for name, index, kind, seconds in episodes
    ]
    return pb.ReportEpisodesRequest(run_id="r", worker_id=worker, slots=slots, episodes=made, notes=["7% abstained"])


def test_waits_are_sorted_longest_first_and_slot_waits_do_not_count_as_playing() -> None:
    workers = EnvironmentWorkers(lease_s=10.0)
    workers.report(report("environment-1"), 100.0)
    waits = [("g7/0", 7, "engine", 1.0), ("g7/1", 7, "tool", 12.0), ("g8/0", 8, "slot", 3.0), ("g9", 9, "weights", 2.0)]
    workers.report(report("environment-0", *waits), 100.0)
    first, second = workers.view(101.0)
    assert (first.id, first.slots, first.playing, first.waiting, first.notes) == (
        "environment-0", 8, 2, 2, ("7% abstained",),
    )  # fmt: skip
    assert [(one.id, one.kind, one.waits_for) for one in first.waits][:2] == [
        ("g7/1", "tool", "the tools search"),
        ("g8/0", "slot", "a free slot"),
    ]
    assert abs(first.seen - first.waits[0].since - 12.0) < 0.2
    assert (second.id, second.playing, second.waits) == ("environment-1", 0, ())


def test_a_worker_whose_lease_has_ended_is_gone() -> None:
    workers = EnvironmentWorkers(lease_s=10.0)
    workers.report(report("environment-0", ("g7/0", 7, "tool", 1.0)), 100.0)
    assert workers.view(110.0) and workers.place_of(7, 110.0)
    assert not workers.view(110.1) and not workers.place_of(7, 110.1)
