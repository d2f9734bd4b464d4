"""What operators do to a live run, and what it answers."""

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace.operate.client import find_client
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.layout import RunPaths
from tests.e2e.harness import DEADLINE_S, TinyRun
from tests.http_tokens import of_run
from tests.verbs import ended as ended_command
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
CHAT = "/v1/chat/completions"
ASKED = {"model": "policy", "messages": [{"role": "user", "content": "12+34="}]}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    """A run that is paused behind its first checkpoint: it would take all cores, and goes on where a test lets it."""
    made = TinyRun(tmp_path_factory.mktemp("operate") / "a", steps=1_000_000, staleness=1, deterministic=False)
    made.start()
    try:
        made.wait_for_step(4)
        headrace("pause", made.run_dir)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def ended(live: TinyRun) -> TinyRun:
    """The same run, stopped as an operator stops one. Tests behind the first that asks for it find no live run."""
    assert live.process is not None
    headrace("stop", live.run_dir)
    live.process.wait(DEADLINE_S)
    assert json.loads(live.output().splitlines()[-1])["steps"] >= 4
    return live


def headrace(*words: Any, code: int = 0) -> dict[str, Any]:
    """The JSON line of a command, or its complaint."""
    if code:
        return {"error": said(*words, "--json", status=code)}
    told: dict[str, Any] = result(*words)
    return told


def url(live: TinyRun) -> str:
    return find_client(live.run_dir).url


def behind(live: TinyRun) -> tuple[str, ...]:
    """The options of a command that knows the run by its address."""
    return "--url", url(live), "--token-file", str(RunPaths(live.run_dir).tokens / Role.OPERATOR)


def chat(live: TinyRun, **more: Any) -> httpx.Response:
    """As a program asks: with no Origin."""
    return httpx.post(
        url(live) + CHAT, json={**ASKED, **more}, headers=of_run(live.run_dir), timeout=60, trust_env=False
    )


def waits_for_more(live: TinyRun) -> bool:
    """What is open makes no batch, and the trainer is done with the one before: it waits for the next.

    Groups count as trained from when their batch is in the journal: the step's line comes later.
    """
    seen = live.status()
    return bool(seen) and seen["credit"]["issued"] < 4 and seen["trainer"]["waiting_for"].startswith("a batch")


def test_a_paused_run_makes_no_steps_and_a_resumed_one_does(live: TinyRun) -> None:
    assert "paused" in headrace("pause", live.run_dir)["said"], "done again it is the same"
    assert live.status()["operator"]["paused"]
    live.wait_until(lambda: waits_for_more(live), "the end of what was under way")
    before = live.steps()
    assert chat(live).status_code == 200, "a pause is no reason not to answer"
    assert live.steps() == before
    assert "resumed" in headrace("resume", *behind(live))["said"]
    live.wait_for_step(before + 2)
    headrace("pause", live.run_dir)


def test_operator_actions_are_logged_and_a_rejected_one_gives_the_reason(live: TinyRun) -> None:
    assert "rollout-1 takes no more" in headrace("drain", "rollout-1", live.run_dir)["said"]
    assert live.status()["operator"]["draining"] == ["rollout-1"]
    assert "takes prompts again" in headrace("drain", "rollout-1", live.run_dir, "--undo")["said"]
    assert "no replica 'rollout-9'" in headrace("drain", "rollout-9", live.run_dir, code=2)["error"]
    acts = [event for event in read_events(live.run_dir) if event.get("event") == "operator_action"]
    assert {event["who"] for event in acts} == {"cli"}
    assert [event["action"] for event in acts][-2:] == ["drain rollout-1", "undrain rollout-1"]


def test_a_requested_checkpoint_is_written(live: TinyRun) -> None:
    headrace("checkpoint", live.run_dir)
    live.wait_until(lambda: not live.status()["operator"]["checkpoint_asked"], "the checkpoint")


def test_a_run_addressed_by_url_scales_and_lists_no_dead_letters(live: TinyRun) -> None:
    assert "rollout-2 is started" in headrace("scale", "rollout", 3, *behind(live))["said"]
    assert "rollout-2 drains" in headrace("scale", "rollout", 2, live.run_dir)["said"]
    assert headrace("dead", live.run_dir) == {"total": 0, "rows": [], "requeued": []}
    assert "no dead letter '1-1'" in headrace("dead", live.run_dir, "--requeue", "1-1", code=2)["error"]


def test_the_policy_answers_openai_clients(live: TinyRun) -> None:
    names = [
        row["id"]
        for row in httpx.get(url(live) + "/v1/models", headers=of_run(live.run_dir), trust_env=False).json()["data"]
    ]
    assert names == ["tiny", "policy"]
    answer = chat(live, max_tokens=12, seed=3).json()
    assert set(answer) >= {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
    incarnation, _, version = answer["system_fingerprint"].partition(".")
    assert incarnation == "1" and 1 <= int(version) <= live.steps() + 1
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer["usage"]["completion_tokens"] <= 12


def test_chats_are_answered_during_training_and_never_trained(live: TinyRun) -> None:
    headrace("resume", live.run_dir)
    before = live.steps()
    versions = [chat(live, max_tokens=4).json()["system_fingerprint"] for _ in range(8)]
    live.wait_for_step(before + 2)
    headrace("pause", live.run_dir)
    assert sorted(versions, key=lambda one: int(one.partition(".")[2])) == versions
    generated = [event for event in read_events(live.run_dir) if event.get("event") == "group_generated"]
    assert generated and not any("chat" in event["group_id"] for event in generated)


def test_generate_samples_from_the_live_run(live: TinyRun) -> None:
    found = headrace("generate", live.run_dir, "--prompt", "12+34=", "--max-tokens", 4, "--temperature", 0)
    assert found["object"] == "chat.completion"
    assert said("generate", *behind(live), "--prompt", "1+1=").endswith("\n")


def test_chat_begins_again_where_the_model_has_no_template_for_a_conversation(
    live: TinyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("12+34=\n1+1=\n"))
    found = ended_command("chat", *behind(live), "--max-tokens", 4)
    assert found.status == 0 and len(found.out.splitlines()) == 2
    assert "no chat template" in found.complaint and "begins again here" in found.complaint


def test_commands_on_an_ended_run_report_that_no_run_is_alive(ended: TinyRun) -> None:
    with pytest.raises(ConfigError, match="no run is alive"):
        find_client(ended.run_dir)
    assert "no run is alive" in headrace("pause", ended.run_dir, code=2)["error"]
