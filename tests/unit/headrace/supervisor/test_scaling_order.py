"""Surplus replicas drain once those that stay are ready, and a request says so until then."""

from types import SimpleNamespace
from typing import Any

from headrace.supervisor.scaling import Scaling


def test_none_drains_before_those_that_stay_have_been_ready() -> None:
    ready, drained, notices = {"rollout-1", "rollout-2"}, list[str](), list[str]()
    processes: Any = SimpleNamespace(
        take_failed=lambda belongs: [],
        try_again=lambda belongs: None,
        was_given_up=lambda name: False,
        monitor=lambda name: name,
        has_been_ready=lambda name: name in ready,
        staying=lambda belongs: [name for name in ("rollout-0", "rollout-1", "rollout-2") if name not in drained],
        dismiss=lambda name, grace_s: drained.append(name),
    )
    unused: Any = None
    scaling = Scaling("rollout", processes, unused, unused, grace_s=1.0, notice=notices.append)
    scaling.ask(1)
    assert not drained and not notices
    assert scaling.situation() == "2 will drain once those that stay are ready"
    ready.add("rollout-0")
    scaling.step()
    assert drained == ["rollout-1", "rollout-2"] and notices == ["rollout-1 drains", "rollout-2 drains"]
    assert scaling.situation() == "there are 1 replicas already"
    scaling.ask(0)
    assert drained[-1] == "rollout-0"
