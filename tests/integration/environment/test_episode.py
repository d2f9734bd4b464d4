"""One episode from its first message to its end: real gRPC, a real tokenizer and template."""

import asyncio
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.model.tiny_models import END
from headrace.services.environment import metrics
from headrace.wire.api.episodes import EpisodeView
from headrace.wire.contracts import FinishReason, PolicyVersion, Rollout, turn_seed
from headrace.wire.contracts.arrays import ids_from_bytes
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.rundir.episode_column import episode_text, episode_view
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import FORGETFUL, play, played, stage
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(400)
SUM = {"a": 12, "b": 34}


def seen(rollout: Rollout) -> EpisodeView:
    """The conversation as people see it."""
    assert rollout.episode is not None
    found = episode_view(episode_text(rollout.episode), rollout.trained_mask.tolist(), lambda ids: None)
    assert found is not None
    return found


def error_of(rollout: Rollout) -> str:
    assert rollout.episode is not None
    return rollout.episode.error


def counting(text: str, request: pb.SampleRequest) -> str:
    """Says 44, 45, 46."""
    return str(44 + request.turn)


def sampled(rollout: Rollout, tokenizer: Any) -> list[str]:
    """The text of each turn, as its tokens say it."""
    assert rollout.episode is not None
    found, start = [], 0
    for end in rollout.episode.turn_ends:
        own = [
            token
            for token, yes in zip(rollout.token_ids[start:end], rollout.trained_mask[start:end], strict=True)
            if yes
        ]
        found.append(tokenizer.decode(own))
        start = end
    return found


async def test_an_episode_is_one_sequence_of_sampled_and_observed_tokens_with_its_rewards(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it:
        rollout = await play(it, played(SUM), index=2, attempt=1)
        asked = it.replicas["rollout-0"].asked
        assert rollout.finish_reason is FinishReason.STOP and rollout.text == "46"
        assert sampled(rollout, it.tokenizer) == [f"44{END}", f"45{END}", f"46{END}"]
        (segment,) = rollout.segments(played(SUM))
        whole = it.tokenizer.decode([*segment.context_ids.tolist(), *rollout.token_ids.tolist()])
        assert whole == (
            f"[user]12+34= (1, test/g00000003/2, 1){END}[assistant]44{END}[user]no{END}[assistant]45{END}"
            f"[user]no{END}[assistant]46{END}"
        )
        # What was sent is what is trained: each context is the sequence so far, id by id.
        ids = np.concatenate([segment.context_ids, rollout.token_ids])
        for request in asked:
            context = ids_from_bytes(request.context_ids)
            np.testing.assert_array_equal(context, ids[: len(context)])
        seeds = [request.sampling.seed for request in asked]
        assert seeds == [turn_seed(7, "test/g00000003", 2, turn) for turn in range(3)] and len(set(seeds)) == 3
        assert {(request.rollout_id, request.attempt) for request in asked} == {("test/g00000003/2", 1)}
        heard = rollout.logprobs[~rollout.trained_mask]
        assert not heard.any() and (rollout.logprobs[rollout.trained_mask] < 0).all()
        episode = rollout.episode
        assert episode is not None and episode.reward is not None
        assert (episode.reward.value, episode.reward.metrics) == (1.0, {"tries": 3.0})
        assert episode.turn_rewards == (-0.25, -0.25, 0.5)
        messages = json.loads(episode.messages_json)
        assert [one["role"] for one in messages] == ["user", "assistant"] * 3
        assert messages[1]["turn"] == 0 and messages[1]["replica"] == "rollout-0" and messages[1]["versions"] == ["1.0"]


async def test_a_template_that_drops_thoughts_begins_a_segment_and_each_token_is_sampled_once(tmp_path: Path) -> None:
    def thinks(text: str, request: pb.SampleRequest) -> str:
        return f"hm {request.turn}</think>{44 + request.turn}"

    before = metrics.SEGMENTS.labels("template")._value.get()
    async with stage(tmp_path, thinks, environment="games:Adder", template=FORGETFUL) as it:
        rollout = await play(it, played({"a": 0, "b": 0}))
        segments = rollout.segments(played(SUM))
        begun = f"[user]0+0= (1, test/g00000003/0, 0){END}[assistant]"
        assert [it.tokenizer.decode(one.context_ids.tolist()) for one in segments][1:] == [
            f"{begun}44{END}[user]no{END}[assistant]",
            f"{begun}44{END}[user]no{END}[assistant]45{END}[user]no{END}[assistant]",
        ]
        assert sampled(rollout, it.tokenizer) == [f"hm {n}</think>{44 + n}{END}" for n in range(3)]
        assert rollout.trained_mask.all()
    assert metrics.SEGMENTS.labels("template")._value.get() == before + 2


async def test_tools_are_called_and_their_results_are_context(tmp_path: Path) -> None:
    def calls(text: str, request: pb.SampleRequest) -> str:
        arguments = [{"a": 12, "b": 34}, {"a": 1}, 3, None][request.turn]
        call = {"name": "add", "arguments": arguments}
        return f"<tool_call>{json.dumps(call)}</tool_call>" if arguments else "it is 46"

    async with stage(tmp_path, calls, tools=("games:add",)) as it:
        rollout = await play(it, played({"prompt": "what is 12 + 34?"}))
        assert rollout.text == "it is 46" and rollout.finish_reason is FinishReason.STOP
        messages = json.loads(rollout.episode.messages_json) if rollout.episode else []
        assert [one["content"] for one in messages if one["role"] == "tool"] == [
            "46",
            "Error: the argument 'b' is missing; the arguments are a, b",
            'Error: call 1 is no call of a tool: "arguments" of add must be an object',
        ]
        assert [one["outcome"] for one in messages if one["role"] == "tool"] == ["returned", "refused", "malformed"]
        view = seen(rollout)
        assert [(one.name, one.arguments) for one in view.messages if one.outcome][:2] == [
            ("add", '{"a": 12, "b": 34}'),
            ("add", '{"a": 1}'),
        ]
        turns = [(one.read_from == one.start, one.versions) for one in view.messages if one.turn is not None]
        assert turns == [(True, ("1.0",)), *[(False, ("1.0",))] * 3]
        text = it.tokenizer.decode(rollout.token_ids[~rollout.trained_mask].tolist())
        assert text.startswith(f"[tool]46{END}[assistant]")


@pytest.mark.parametrize(
    ("limits", "sampling", "reason", "turns"),
    [
        ({"max_turns": 2}, {}, FinishReason.TURN_LIMIT, 2),
        ({}, {"max_tokens": 5}, FinishReason.LENGTH, 2),
        ({"max_turn_tokens": 1}, {}, FinishReason.LENGTH, 1),
        ({"context_length": 60}, {}, FinishReason.LENGTH, 2),
        ({"context_length": 10}, {}, FinishReason.LENGTH, 0),
    ],
    ids=["turns", "tokens of the episode", "tokens of a turn", "the context", "a context that is full at once"],
)
async def test_a_limit_ends_an_episode_which_keeps_its_reward(
    tmp_path: Path, limits: dict[str, Any], sampling: dict[str, Any], reason: FinishReason, turns: int
) -> None:
    async with stage(tmp_path, counting, environment="games:Adder", limits=limits) as it:
        rollout = await play(it, played({"a": 0, "b": 0}, **sampling))
        assert rollout.finish_reason is reason and not reason.abstains
        assert rollout.episode is not None and len(rollout.episode.turn_ends) == turns
        assert rollout.must_abstain is (turns == 0)
        rewards = rollout.episode.turn_rewards
        assert not rewards or (len(rewards) == turns and (math.isnan(rewards[-1]) or rewards[-1] == -0.25))


@pytest.mark.parametrize(
    ("config", "task", "limits", "reason", "words"),
    [
        ({"environment": "games:Raises"}, {}, {}, "environment_error", r"KeyError: 'no such task' \(games.py:\d+\)"),
        ({"tools": ("games:end",)}, {"prompt": "end"}, {}, "tool_lost", "was ended by SIGKILL"),
        ({"tools": ("games:search",)}, {"prompt": "search"}, {}, "tool_lost", r"does not answer \(games.py:\d+\)"),
        ({"tools": ("games:hang",)}, {"prompt": "hang"}, {"tool_s": 3.0}, "time", "environment.tool_s = 3 s"),
        ({"tools": ("games:hang",)}, {"prompt": "hang"}, {"episode_s": 4.0}, "time", "passed: the tools hang"),
    ],
    ids=[
        "raises in reset",
        "kills its process",
        "a server is away",
        "a tool hangs",
        "an episode lasts",
    ],
)
async def test_a_failure_of_the_environment_abstains_and_the_next_episode_is_played(
    tmp_path: Path, config: dict[str, Any], task: dict[str, Any], limits: dict[str, Any], reason: str, words: str
) -> None:

    def says(text: str, request: pb.SampleRequest) -> str:
        call = {"name": task.get("prompt", ""), "arguments": {}}
        return f"<tool_call>{json.dumps(call)}</tool_call>" if "again" not in text else "enough"

    async with stage(tmp_path, says, limits=limits, slots=1, isolated=True, **config) as it:
        rollout = await play(it, played(task))
        assert rollout.finish_reason == reason and rollout.must_abstain
        assert rollout.episode is not None and re.search(words, rollout.episode.error), rollout.episode.error
        if "tools" in config:
            # The call in which it ended is seen, with its arguments and without a result.
            (call,) = [one for one in seen(rollout).messages if one.outcome]
            assert (call.name, call.outcome) == (task["prompt"], "unanswered")
            assert json.loads(call.arguments) == {}
            outcome = "lost" if reason == "tool_lost" else "late" if "tool_s" in limits else "broken_off"
            assert metrics.TOOL_CALLS.labels(task["prompt"], outcome)._value.get() >= 1
            after = await play(it, played({"prompt": "again"}))
            assert after.finish_reason is FinishReason.STOP and len(rollout.token_ids)


async def test_turns_stay_with_the_replica_that_has_their_prefix_and_move_if_it_fails(tmp_path: Path) -> None:
    failed = []

    def fails_once(text: str, request: pb.SampleRequest) -> str:
        if request.turn == 1 and not failed:
            failed.append(request.turn)
            raise TransientError("the engine is gone")
        return counting(text, request)

    async with stage(tmp_path, fails_once, replicas=2, environment="games:Adder") as it:
        rollout = await play(it, played({"a": 0, "b": 0}))
        assert rollout.finish_reason is FinishReason.STOP and failed
        home, other = sorted(it.replicas.values(), key=lambda one: one.asked[0].turn)
        assert [request.turn for request in home.asked] == [0, 1]
        assert [request.turn for request in other.asked] == [1, 2]
        assert home.asked[1] == other.asked[0]  # The same turn with the same seed.


def prefix_tokens() -> tuple[float, float]:
    known, cached = (metrics.PREFIX_TOKENS.labels(kind)._value.get() for kind in ("known", "cached"))
    return known, cached


async def test_cached_context_tokens_are_counted_unless_the_weights_changed(tmp_path: Path) -> None:
    def updated(text: str, request: pb.SampleRequest) -> str:
        if request.turn == 2:
            replica.version = PolicyVersion(incarnation=1, version=1)
        return counting(text, request)

    def lengths() -> list[int]:
        return [len(ids_from_bytes(request.context_ids)) for request in replica.asked]

    async with stage(tmp_path, updated, environment="games:Adder") as it:
        (replica,) = it.replicas.values()
        before = prefix_tokens()
        await play(it, played({"a": 0, "b": 0}))
        assert len(replica.asked) == 3 and prefix_tokens() == before, "it reports nothing"
        replica.asked.clear()
        # In the first turn what another episode left behind, later the whole first context.
        replica.cached = lambda request: 5 if request.turn == 0 else lengths()[0]
        replica.version = PolicyVersion(incarnation=1, version=0)
        await play(it, played({"a": 0, "b": 0}))
        # The third turn is of new weights: nothing of its context could have been kept.
        known = lengths()[0] + len(it.tokenizer("44", add_special_tokens=False)["input_ids"])
        assert known < lengths()[1] and len(lengths()) == 3
        assert prefix_tokens() == (before[0] + known, before[1] + lengths()[0])


async def test_a_turn_moves_from_a_hanging_replica_once_the_orchestrator_no_longer_lists_it(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, replicas=2, environment="games:Adder") as it:
        for replica in it.replicas.values():
            replica.hold = asyncio.Event()
        playing = asyncio.create_task(play(it, played({"a": 0, "b": 0})))
        await until_async(lambda: any(one.asked for one in it.replicas.values()))
        hung, other = sorted(it.replicas.values(), key=lambda one: -len(one.asked))
        assert other.hold is not None and not other.asked
        other.hold.set()
        it.remove(hung.name)
        assert (await playing).finish_reason is FinishReason.STOP
        assert len(hung.asked) == 1 and other.asked[0] == hung.asked[0]


async def test_an_episode_waits_for_weights_that_are_new_enough(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder") as it:
        playing = asyncio.create_task(play(it, played({"a": 0, "b": 0}, min_version=2)))
        it.place("rollout-0", version=1)
        await asyncio.sleep(0.3)
        assert not it.replicas["rollout-0"].asked
        it.place("rollout-0", version=2)
        assert (await playing).finish_reason is FinishReason.STOP


async def test_a_turn_that_no_replica_can_sample_fails_the_group_not_the_episode(tmp_path: Path) -> None:
    def refuses(text: str, request: pb.SampleRequest) -> str:
        raise ContractError("bad_tokens", "never")

    async with stage(tmp_path, refuses, environment="games:Adder") as it:
        with pytest.raises(ContractError, match="never"):
            await play(it, played(SUM))


async def test_a_cancelled_episode_frees_its_child_for_the_next(tmp_path: Path) -> None:
    async with stage(tmp_path, counting, environment="games:Adder", slots=1) as it:
        replica = it.replicas["rollout-0"]
        replica.hold = asyncio.Event()
        playing = asyncio.create_task(play(it, played(SUM)))
        await until_async(lambda: replica.asked)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        replica.hold = None
        assert (await play(it, played(SUM))).finish_reason is FinishReason.STOP
