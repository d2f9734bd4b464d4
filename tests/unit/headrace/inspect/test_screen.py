"""What a person sees: the live table names everything that waits, and lines come once a step."""

import io
import json
import time
from pathlib import Path

import pytest

from headrace.inspect.output import Output
from headrace.inspect.results import StepTail, summarize
from headrace.inspect.screen import Lines, LiveTable, step_line
from headrace.inspect.terminal import SafeConsole
from headrace.supervisor.view import View
from headrace.wire.rundir.events import EventLog
from tests.status import run_status

STATUS = {
    "state": "running",
    "step": 3,
    "max_steps": 10,
    "version": 3,
    "credit": {"issued": 5, "limit": 8},
    "groups": {"trained": 12, "dropped": {"stale": 2, "uninformative": 3}},
    "trainer": {
        "state": "alive",
        "waiting_for": "a batch",
        "waiting_share": 0.25,
        "metrics": {"reward_mean": 0.5, "staleness_mean": 0.75},
    },
    "replicas": [
        {
            "id": "0",
            "state": "SERVING",
            "version": "1.3",
            "in_flight_rollouts": 8,
            "waiting_share": 0.1,
            "tokens_per_second": 99.5,
        },
        {"id": "1", "state": "UPDATING", "version": "1.2", "waiting_share": 0.3, "waiting_for": "weights"},
        {"id": "rollout-2", "state": "UPDATING", "waiting_share": 0.2, "publication": "transfer of 1.3 over gloo"},
    ],
    "streams": {"rollouts": {"pending": 2, "undelivered": 4}},
    "publication": {
        "version": "1.3",
        "phase": "transfer",
        "waiting_for": "rollout-1",
        "seconds": 3.24,
        "deadline_s": 120.0,
    },
}
SERVICES = dict.fromkeys(
    ("broker", "orchestrator", "trainer", "rollout-0", "rollout-1", "rollout-2", "reward"), "ready"
)


def test_lines_come_once_a_step_and_only_when_whole(tmp_path: Path) -> None:
    said: list[str] = []
    lines = Lines(tmp_path, said.append)
    view = View(run_status(**STATUS), SERVICES, ())
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1, "reward_mean": 0.25}) + "\n" + '{"step": 2, "rew')
        file.flush()
        lines.show(view)
        file.write('ard_mean": 0.5}\n')
        file.flush()
        lines.show(view)
        lines.show(view)
    (tmp_path / "evals.jsonl").write_text('{"version": 2, "accuracy": 0.5, "prompts": 10, "missing": 1}\n')
    lines.show(View(run_status(**STATUS), SERVICES, ("rollout-0 died",)))
    assert said == [
        "step 1/10  reward 0.250",
        "step 2/10  reward 0.500",
        "rollout-0 died",
        "held-out accuracy 50.0% at version 2 (10 prompts, 1 missing)",
    ]
    assert StepTail(tmp_path).read() == [], "a resumed run does not repeat what was said before"


def test_the_summary_counts_a_replayed_step_once(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "rollouts": 8, "logprob_gap_max": 1e-6},
        {"step": 1, "rollouts": 8, "logprob_gap_max": 2e-6, "replayed": True},
        {"step": 2, "rollouts": 8, "logprob_gap_max": None},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "evals.jsonl").write_text('{"version": 0, "accuracy": 0.25}\n{"version": 2, "accuracy": 0.5}\n')
    for replica, life, versions in (("rollout-0", "a", (0, 1)), ("rollout-0", "b", (1,)), ("rollout-1", "c", (1,))):
        log = EventLog(tmp_path, replica, life)
        for version in versions:
            log.append("weights_committed", incarnation=1, version=version, digest="d")
        log.close()
    for life, groups in ((1, ("g1", "g2")), (2, ("g2", "g3"))):
        log = EventLog(tmp_path, "trainer", life)
        for group in groups:
            log.append("dropped", group_id=group, reason="stale" if group == "g1" else "uninformative")
        log.close()
    summary = json.loads(summarize(tmp_path, 1.5).as_json())
    assert summary == {
        "eval_measure": "accuracy", "eval_before": 0.25, "eval_after": 0.5, "steps": 2, "rollouts": 16, "seconds": 1.5,
        "logprob_gap_max": 2e-6, "versions_committed": {"rollout-0": 2, "rollout-1": 1}, "run_dir": str(tmp_path),
        "receipt": None, "events_left_out": 0,
        "groups_dropped": {"stale": 1, "uninformative": 2},
    }  # fmt: skip
    assert summarize(tmp_path / "none", 0.0).eval_before is None


def test_a_gap_is_shown_only_where_tokens_were_compared() -> None:
    row = {"step": 1, "logprob_gap_tokens": 9, "logprob_gap_max": 0.0, "canary_gap": 2.1e-7}
    assert "logprob gap 0.0e+00" in step_line(row) and "canary" not in step_line(row)
    # Steps of an earlier version of Headrace have a gap of 0 there.
    for none in ({"logprob_gap_max": 0.0}, {}):
        line = step_line({"step": 1, "logprob_gap_tokens": 0, "canary_gap": 2.1e-7, **none})
        assert "logprob gap not compared (canary 2.1e-07)" in line and "0.0e+00" not in line
    assert "logprob gap not compared" in step_line({"step": 1, "logprob_gap_tokens": 0})
    assert "logprob gap" not in step_line({"step": 1, "loss": 0.5})


def test_a_line_has_the_first_components_of_a_reward_that_has_several():
    row = {"step": 1, "reward_mean": 0.5, "rewards/a/mean": 0.25, "rewards/a/std": 9.0, "rewards/a/web/mean": 9.0}
    assert step_line(row) == "step 1  reward 0.500"
    several = row | {f"rewards/{name}/mean": 1.0 for name in "bcd"}
    assert step_line(several) == "step 1  reward 0.500  a 0.250  b 1.000  c 1.000"


@pytest.mark.parametrize("width", [80, 120])
def test_a_live_table_has_the_whole_advice_and_the_time_left(tmp_path: Path, width: int) -> None:
    advice = " ".join(f"word{number}" for number in range(40))
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=width, height=60, soft_wrap=True, highlight=False)
    table = LiveTable(tmp_path, Output(console, json=False).console)
    table.show(View(run_status(**STATUS, bottleneck={"text": advice}, step_seconds=30.0), SERVICES, ()))
    table.close()
    shown = file.getvalue()
    assert [word for word in advice.split() if word not in shown] == []
    assert "step 3/10, about 4 min left" in shown


def test_lines_tell_what_goes_on_where_nothing_else_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = Lines(tmp_path, said.append)

    def after(seconds: float, **changes: object) -> list[str]:
        nonlocal now
        now += seconds
        said.clear()
        lines.show(View(run_status(**STATUS | changes), SERVICES, ()))
        return list(said)

    assert after(9.9) == [] and after(0.2) == ["trainer: waits for a batch from reward"]
    assert after(11.0) == [], "a long step is not told about six times a minute"
    counted = "evaluation of version 3: 5 of 10 prompts"
    assert after(0.1, evaluating=counted) == [counted] and after(11.0, evaluating=counted) == [counted]
