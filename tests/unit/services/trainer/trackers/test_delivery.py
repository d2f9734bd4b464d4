"""A tracker reads behind the run: it gets every line once, and whatever it does costs the run nothing."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.services.trainer import metrics
from headrace.services.trainer.trackers.completions import Rows
from headrace.services.trainer.trackers.delivery import Delivery
from headrace.wire.rundir import rollouts
from tests.waiting import until

DEADLINE_S = 120.0


class Told:
    """Keeps what it is told; raises or hangs where a test says so."""

    def __init__(self, trouble: Callable[[str], None] = lambda call: None) -> None:
        self.trouble = trouble
        self.calls: list[str] = []
        self.steps: dict[int, Mapping[str, float]] = {}
        self.evals: dict[int, Mapping[str, float]] = {}

    def start(self, config: Mapping[str, Any], previous: str) -> str:
        self._call("start")
        return previous or "first"

    def log(self, kind: str, step: int, numbers: Mapping[str, float], at: float) -> None:
        self._call("log" if kind == "train" else "log_eval")
        taken = self.steps if kind == "train" else self.evals
        assert step not in taken
        taken[step] = numbers

    def log_completions(self, step: int, rows: Rows) -> None:
        self._call(f"log_completions {step}: {[row['reward'] for row in rows]}")

    def log_receipt(self, step: int, receipt: str) -> None:
        self._call(f"log_receipt {step} {receipt}")

    def finish(self) -> None:
        self._call("finish")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.trouble(name)


def write(run: Path, *steps: int, file: str = "metrics.jsonl", key: str = "step") -> None:
    (run / "trackers").mkdir(exist_ok=True)
    with (run / file).open("a") as out:
        for step in steps:
            out.write(json.dumps({key: step, "t": 1.5, "loss": step / 2, "replayed": False, "kl": None}) + "\n")


def deliver(run: Path, tracker: Told, *, completions: int = 0) -> Delivery:
    delivery = Delivery("test", tracker, run / "trackers", {"run": {}}, completions=completions, look_s=0.02)
    delivery.start()
    return delivery


def dropped() -> float:
    return float(metrics.TRACKER_DROPPED.labels("test")._value.get())


def test_every_line_is_handed_over_once_with_its_numbers(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    tracker = Told()
    delivery = deliver(tmp_path, tracker)
    until(lambda: len(tracker.steps) == 2)
    write(tmp_path, 3)
    write(tmp_path, 0, 2, file="evals.jsonl", key="version")
    before = dropped()
    delivery.finish(5)
    assert tracker.steps == {step: {"loss": step / 2, "replayed": 0.0} for step in (1, 2, 3)}
    assert list(tracker.evals) == [0, 2]
    assert tracker.calls[0] == "start" and tracker.calls[-1] == "finish" and dropped() == before


def test_the_best_and_the_worst_rollout_of_a_step_follow_its_numbers_a_missing_file_is_passed_over(
    tmp_path: Path,
) -> None:
    rewards = [0.5, None, 1.0, 0.25]
    rollouts.write(tmp_path / "rollouts", 2, [{"rollout_index": at, "reward": one} for at, one in enumerate(rewards)])
    write(tmp_path, 1, 2)
    tracker = Told(lambda call: (_ for _ in ()).throw(OSError("no tables")) if "completions" in call else None)
    deliver(tmp_path, tracker, completions=2).finish(30)
    assert [call for call in tracker.calls if "completions" in call] == ["log_completions 2: [1.0, None]"]
    assert list(tracker.steps) == [1, 2]


def test_tables_that_fail_are_told_once_and_do_not_count_against_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(call: str) -> None:
        if "completions" in call:
            raise OSError("no tables")

    for step in (1, 2, 3):
        rollouts.write(tmp_path / "rollouts", step, [{"rollout_index": 0, "reward": 1.0}])
    write(tmp_path, 1, 2, 3)
    tracker = Told(trouble)
    delivery = deliver(tmp_path, tracker, completions=1)
    delivery.finish(30)
    assert list(tracker.steps) == [1, 2, 3] and delivery._failures == 0
    assert sum("completions" in call for call in tracker.calls) == 3
    said = "".join(capsys.readouterr())
    assert said.count("tracker_fails") == 1 and "the numbers arrive" in said


def test_the_receipt_is_delivered_after_the_last_line(tmp_path: Path) -> None:
    write(tmp_path, 1)
    tracker = Told()
    delivery = deliver(tmp_path, tracker)
    write(tmp_path, 2)
    delivery.ask_to_finish(step=2, receipt="0f")
    delivery.finish(DEADLINE_S)
    assert list(tracker.steps) == [1, 2]
    assert tracker.calls[-2:] == ["log_receipt 2 0f", "finish"]


def test_a_later_life_continues_the_same_run_after_the_last_line(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    first = Told()
    deliver(tmp_path, first).finish(5)
    write(tmp_path, 3)
    second = Told()
    opened: list[str] = []
    start = second.start
    second.start = lambda config, previous: opened.append(previous) or start(config, previous)  # type: ignore
    deliver(tmp_path, second).finish(5)
    assert opened == ["first"]
    assert (list(first.steps), list(second.steps)) == ([1, 2], [3])


def test_a_torn_line_waits_for_its_end_and_a_strange_one_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with (tmp_path / "metrics.jsonl").open("a") as out:
        out.write('nonsense\n[1]\n{"step": "x"}\n{"step": 2, "loss"')
    tracker = Told()
    delivery = deliver(tmp_path, tracker)
    until(lambda: 1 in tracker.steps)
    with (tmp_path / "metrics.jsonl").open("a") as out:
        out.write(": 7}\n")
    before = dropped()
    delivery.finish(5)
    assert tracker.steps[2] == {"loss": 7.0} and dropped() == before


@pytest.mark.parametrize("point", ["start", "log", "log_eval"])
def test_an_error_is_tried_again_until_it_is_over(
    tmp_path: Path, point: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [3]

    def trouble(call: str) -> None:
        if call == point and left[0]:
            left[0] -= 1
            raise OSError("no network")

    write(tmp_path, 1, 2)
    write(tmp_path, 0, file="evals.jsonl", key="version")
    tracker = Told(trouble)
    delivery = deliver(tmp_path, tracker)
    until(lambda: list(tracker.steps) == [1, 2] and list(tracker.evals) == [0])
    delivery.finish(5)
    assert tracker.calls.count(point) >= 4 and tracker.calls[-1] == "finish"


@pytest.mark.parametrize("point", ["start", "log", "finish"])
def test_a_tracker_that_always_fails_is_left_in_time(tmp_path: Path, point: str) -> None:
    def trouble(call: str) -> None:
        if call == point:
            raise RuntimeError("no")

    write(tmp_path, 1, 2)
    tracker = Told(trouble)
    before = dropped()
    delivery = deliver(tmp_path, tracker)
    delivery.finish(DEADLINE_S)
    # It has given up by itself: no deadline had to end the wait for it.
    assert not delivery._thread.is_alive()
    assert dropped() - before == (0 if point == "finish" else 2)
    # Nothing is lost: the next life hands over what this one could not.
    second = Told()
    deliver(tmp_path, second).finish(5)
    assert list(second.steps) == ([] if point == "finish" else [1, 2])


def test_a_line_that_is_always_refused_is_passed_over(tmp_path: Path) -> None:
    tracker = Told()
    log = tracker.log

    def picky(kind: str, step: int, numbers: Mapping[str, float], at: float) -> None:
        if step == 2:
            raise ValueError("not this one")
        log(kind, step, numbers, at)

    tracker.log = picky  # type: ignore[method-assign]
    write(tmp_path, 1, 2, 3)
    before = dropped()
    delivery = Delivery("test", tracker, tmp_path / "trackers", {}, look_s=0.001)
    delivery.start()
    until(lambda: 3 in tracker.steps)
    delivery.finish(5)
    assert list(tracker.steps) == [1, 3] and dropped() - before == 1


@pytest.mark.parametrize("point", ["start", "log", "finish"])
def test_a_tracker_that_hangs_is_left_in_time(tmp_path: Path, point: str) -> None:
    released = threading.Event()

    def trouble(call: str) -> None:
        if call == point:
            released.wait(300)

    write(tmp_path, 1, 2)
    tracker = Told(trouble)
    delivery = deliver(tmp_path, tracker)
    until(lambda: point in tracker.calls or (point == "finish" and len(tracker.steps) == 2))
    before = dropped()
    delivery.finish(0.5)
    assert delivery._thread.is_alive(), "it waited until the call had returned"
    assert dropped() - before == (0 if point == "finish" else 2)
    released.set()
