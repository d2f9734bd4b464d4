"""Chats on the real server, beside rollouts of training."""

import asyncio
import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import character_tokenizer
from headrace.services.rollout.chat.chat import ChatService
from headrace.services.rollout.engines.sglang.engine import SGLangEngine
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.contracts import PolicyVersion
from headrace.wire.v1 import rollout_pb2 as pb
from tests.rollout_models import make_model, make_request, random_prompts
from tests.sglang import Server, Trainer, attached, engine_of

pytestmark = pytest.mark.sglang
ASKED = json.dumps([{"role": "user", "content": "12+34="}])


def chat_of(engine: SGLangEngine) -> ChatService:
    gate = Gate()
    gate.move(ReplicaState.PENDING_WEIGHTS)
    gate.move(ReplicaState.UPDATING)
    gate.commit(Serving(PolicyVersion(incarnation=1, version=0), ""))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=character_tokenizer(CHARACTERS))
    return ChatService(engine, gate, tokenizer, replica_id="rollout-0", at_once=2)


async def answer(chat: ChatService, **more: float) -> list[pb.ChatPiece]:
    values = {"max_tokens": 60, "temperature": 1.0, "top_p": 1.0, "deadline_s": 60.0, "wait_s": 5.0}
    return [piece async for piece in chat.answer(pb.ChatRequest(messages_json=ASKED, **(values | more)))]


async def test_chats_are_answered_greedy_and_cut_while_rollouts_are_made(server: Server, tmp_path: Path) -> None:
    async with engine_of(attached(server, tmp_path)) as engine:
        await Trainer().publish(engine, make_model(seed=3), 0)
        chat = chat_of(engine)
        training = [
            asyncio.create_task(engine.generate(make_request(prompt, 4, max_tokens=100)))
            for prompt in random_prompts(5, 9, 14, 20)
        ]
        ways: list[dict[str, float]] = [{"temperature": 0}, {"temperature": 0}, {"top_p": 0.5}]
        greedy, again, cut = [await answer(chat, **way) for way in ways]
        assert [one.text for one in greedy] == [one.text for one in again]
        for pieces in (greedy, cut):
            assert pieces[-1].finish_reason == "length" and pieces[-1].completion_tokens == 60
            assert (pieces[-1].version.incarnation, pieces[-1].version.version) == (1, 0)
        for group in await asyncio.gather(*training):
            assert [len(one.token_ids) for one in group] == [100] * 4
