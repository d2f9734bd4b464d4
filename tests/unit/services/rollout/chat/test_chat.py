"""Chats on a real engine: pieces, versions, publications, places."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.services.rollout.chat.chat import PIECES, ChatService
from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.contracts import PolicyVersion
from headrace.wire.v1 import rollout_pb2 as pb

SHAPE = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=128)
SHAPE_VOCABULARY = character_tokenizer(CHARACTERS).get_vocab_size()
Kind = pb.ChatRefusal


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat") / "model"
    write_model(folder, character_tokenizer(CHARACTERS), SHAPE, seed=1)
    return folder


class Replica:
    """Engine, gate and chat, as the service has them."""

    def __init__(self, model: Path, *, at_once: int = 2) -> None:
        self.engine = TorchEngine(model, max_rows=4)
        self.named = dict(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).named_parameters())
        self.gate = Gate()
        self.gate.move(ReplicaState.PENDING_WEIGHTS)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
        self.chat = ChatService(self.engine, self.gate, tokenizer, replica_id="rollout-0", at_once=at_once)

    async def publish(self, number: int) -> None:
        version = PolicyVersion(incarnation=1, version=number)
        if self.gate.state is not ReplicaState.UPDATING:
            self.gate.move(ReplicaState.UPDATING)
        await self.engine.adopt(self.named, version, 10)
        self.gate.commit(Serving(version, ""))

    async def ask(self, **more: Any) -> list[pb.ChatPiece]:
        return [piece async for piece in self.chat.answer(request(**more))]


def request(text: str = "12+34=", **more: Any) -> pb.ChatRequest:
    """No stop tokens: an answer has as many tokens as it may."""
    messages = json.dumps([{"role": "user", "content": text}])
    values: dict[str, Any] = {"messages_json": messages, "max_tokens": 40, "temperature": 1.0, "top_p": 1.0, "seed": 7}
    return pb.ChatRequest(**(values | {"deadline_s": 30.0, "wait_s": 5.0} | more))


@pytest.fixture
async def replica(model: Path) -> AsyncIterator[Replica]:
    made = Replica(model)
    await made.publish(3)
    yield made
    await made.engine.close(5)


async def test_an_answer_is_streamed_in_pieces_and_the_last_one_has_the_finish_reason(replica: Replica) -> None:
    pieces = await replica.ask(max_tokens=100)
    sizes = [piece.completion_tokens for piece in pieces]
    assert sizes[-1] == 100 and set(sizes) <= {16, 48, 100}
    assert [piece.finish_reason for piece in pieces] == [""] * (len(pieces) - 1) + ["length"]
    assert pieces[-1].prompt_tokens == 6
    assert (pieces[-1].version.incarnation, pieces[-1].version.version) == (1, 3)


async def test_a_seed_fixes_the_answer_and_temperature_0_needs_no_seed(replica: Replica) -> None:
    async def text(**more: Any) -> str:
        return "".join(piece.text for piece in await replica.ask(**more))

    assert await text(seed=5) == await text(seed=5) != await text(seed=6)
    assert await text(temperature=0.0, seed=1) == await text(temperature=0.0, seed=2)


async def test_a_stop_text_ends_the_answer_before_it_and_soon(replica: Replica) -> None:
    whole = "".join(piece.text for piece in await replica.ask(max_tokens=100))
    stop = whole[3:5]
    pieces = await replica.ask(max_tokens=100, stop=[stop])
    assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
    assert pieces[-1].finish_reason == "stop"
    assert pieces[-1].completion_tokens <= PIECES[0]


async def test_a_stop_token_ends_it_and_a_full_context_too(replica: Replica) -> None:
    everything = list(range(SHAPE_VOCABULARY))
    (piece,) = await replica.ask(stop_token_ids=everything)
    assert (piece.text, piece.finish_reason, piece.completion_tokens) == ("", "stop", 1)
    assert (await replica.ask(max_tokens=0))[-1].completion_tokens == 128 - 6


async def test_a_chat_waits_for_a_publication_and_reports_both_versions(replica: Replica) -> None:
    pieces: list[pb.ChatPiece] = []
    async with aclosing(replica.chat.answer(request(max_tokens=100))) as answer:
        async for piece in answer:
            pieces.append(piece)
            if len(pieces) == 1:
                replica.gate.move(ReplicaState.UPDATING)
                asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(replica.publish(4)))
    assert pieces[-1].finish_reason == "length"
    assert (pieces[-1].oldest_version.version, pieces[-1].version.version) == (3, 4)


async def test_no_weights_in_time_and_weights_that_went_are_refused(replica: Replica) -> None:
    replica.gate.move(ReplicaState.UPDATING)
    (refused,) = await replica.ask(wait_s=0.1)
    assert refused.refusal.kind == Kind.KIND_UNAVAILABLE and "updating" in refused.refusal.reason
    replica.gate.disown(ReplicaState.QUARANTINED, "bad sums")
    (refused,) = await replica.ask(wait_s=0.1)
    assert refused.refusal.kind == Kind.KIND_UNAVAILABLE and "quarantined" in refused.refusal.reason


async def test_chat_places_are_bounded_and_freed_by_disconnected_clients(replica: Replica) -> None:
    open_ones = [replica.chat.answer(request(max_tokens=100)) for _ in range(2)]
    for answer in open_ones:
        await anext(answer)
    (refused,) = await replica.ask()
    assert refused.refusal.kind == Kind.KIND_BUSY
    await open_ones[0].aclose()
    assert (await replica.ask())[-1].finish_reason == "length"
    await open_ones[1].aclose()


async def test_a_deadline_a_bad_message_and_a_prompt_too_long_are_refused_in_words(replica: Replica) -> None:
    (late,) = await replica.ask(deadline_s=0.0)
    assert late.refusal.kind == Kind.KIND_LATE
    (bad,) = await replica.ask(messages_json="[]")
    assert bad.refusal.kind == Kind.KIND_BAD_REQUEST
    (long,) = await replica.ask(text="1+" * 100)
    assert long.refusal.kind == Kind.KIND_BAD_REQUEST and "context of 128" in long.refusal.reason
