"""Answers chats with the weights being served, alongside the training rollouts.

An answer is sampled in pieces, each a separate request to the engine: so it can be streamed, ends soon after a stop
text, continues under new weights, and never makes a training group wait for a long answer. It is not counted as
training.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.services.rollout import metrics
from headrace.services.rollout.chat.answer_text import AnswerText
from headrace.services.rollout.chat.chat_prompt import ChatPrompts
from headrace.services.rollout.engines.protocol import (
    AbandonedError,
    Completion,
    Engine,
    GenerateRequest,
    GenerationError,
)
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.contracts import FinishReason, PolicyVersion, Sampling, rollout_seed
from headrace.wire.contracts.codec import VERSION
from headrace.wire.contracts.messages import TokenIds
from headrace.wire.errors import ContractError, TransientError, WaitTimeoutError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import rollout_pb2 as pb

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PIECES = (16, 32, 64, 128)
"""Tokens per piece; the last number applies to all further pieces."""
_MOST_TOKENS = 1 << 20
_TRIES = 5
"""Attempts per piece when the engine abandons it."""
_AGAIN_S = 0.1
_OVER = (ReplicaState.DRAINING, ReplicaState.GONE, ReplicaState.SLEEPING)
"""States in which waiting for weights is pointless."""
Kind = pb.ChatRefusal.Kind
log = get_logger("rollout.chat")


class ChatEndedError(Exception):
    """A chat that was refused, or whose answer was broken off."""

    def __init__(self, kind: "pb.ChatRefusal.Kind.ValueType", reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(slots=True)
class _Answer:
    """State of one chat in progress."""

    prompt: TokenIds
    text: AnswerText
    tokens: list[int]
    seed: int
    most: int
    versions: list[PolicyVersion]
    pieces: int = 0

    def size(self) -> int:
        """Number of tokens to request for the next piece."""
        return min(PIECES[min(self.pieces, len(PIECES) - 1)], self.most - len(self.tokens))


class ChatService:
    """All chats of one replica."""

    def __init__(
        self, engine: Engine, gate: Gate, tokenizer: "PreTrainedTokenizerBase", *, replica_id: str, at_once: int
    ) -> None:
        """At most `at_once` chats are answered at the same time."""
        self._engine, self._gate, self._tokenizer = engine, gate, tokenizer
        self._prompts = ChatPrompts(tokenizer, context_length=engine.context_length)
        self._thread = ThreadPoolExecutor(1, "chat-prompt")
        """Tokenizes one prompt at a time: a long one takes gigabytes."""
        self._replica_id = replica_id
        self._at_once = at_once
        self._running = 0
        self._left_behind = 0
        """Prompts that are still being tokenized, though their clients have left."""

    async def answer(self, request: pb.ChatRequest) -> AsyncGenerator[pb.ChatPiece, None]:
        """The pieces of an answer; the last has the finish reason or the refusal, so no headrace error is raised."""
        outcome = "broken_off"
        try:
            async with self._place():
                async for piece in self._pieces(request):
                    yield piece
            outcome = "answered"
        except WaitTimeoutError:
            outcome = "late"
            yield self._refusal(Kind.KIND_LATE, f"the answer took longer than {request.deadline_s:.0f} s")
        except ChatEndedError as error:
            outcome = "refused"
            yield self._refusal(error.kind, str(error))
        except ContractError as error:
            outcome = "refused"
            yield self._refusal(Kind.KIND_BAD_REQUEST, error.message)
        except (TransientError, GenerationError) as error:
            log.warning("chat_failed", error=str(error))
            outcome = "failed"
            yield self._refusal(Kind.KIND_UNAVAILABLE, str(error))
        finally:
            metrics.CHATS.labels(outcome).inc()

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        running = self._running + self._left_behind
        if running >= self._at_once:
            raise ChatEndedError(
                Kind.KIND_BUSY, f"{running} chats are in progress here, rollout.chats is {self._at_once}"
            )
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _prompt(self, request: pb.ChatRequest) -> TokenIds:
        """The prompt's tokens. A thread cannot be ended: its place stays taken until it has finished."""
        loop = asyncio.get_running_loop()
        work = self._thread.submit(self._prompts.token_ids, request.messages_json)
        try:
            return await wait_for(asyncio.wrap_future(work), request.deadline_s, "the prompt to be tokenized")
        finally:
            if work.running():
                self._left_behind += 1
                work.add_done_callback(lambda _: self._has_ended(loop))

    def _has_ended(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called on the thread."""

        def count() -> None:
            self._left_behind -= 1

        with suppress(RuntimeError):  # The loop is closed: the process ends.
            loop.call_soon_threadsafe(count)

    async def _pieces(self, request: pb.ChatRequest) -> AsyncIterator[pb.ChatPiece]:
        end = time.monotonic() + request.deadline_s
        answer = _Answer(
            prompt=await self._prompt(request),
            text=AnswerText(request.stop),
            tokens=[],
            seed=request.seed if request.HasField("seed") else secrets.randbits(63),
            most=request.max_tokens or _MOST_TOKENS,
            versions=[],
        )
        while True:
            wanted = answer.size()
            left = max(end - time.monotonic(), 0.0)
            completion = await wait_for(self._sample(answer, request, wanted), left, "an answer")
            answer.tokens += completion.token_ids.tolist()
            answer.versions += [span.version for span in completion.spans]
            answer.pieces += 1
            at_stop = completion.finish_reason is FinishReason.STOP
            # Fewer tokens than requested: the context is full.
            ended = at_stop or len(answer.tokens) >= answer.most or len(completion.token_ids) < wanted
            text = answer.text.take(self._decode(answer.tokens[:-1] if at_stop else answer.tokens), last=ended)
            reason = "stop" if at_stop or answer.text.stopped else "length" if ended else ""
            if text or reason:
                yield self._piece(answer, text, reason)
            if reason:
                return

    async def _sample(self, answer: _Answer, request: pb.ChatRequest, size: int) -> Completion:
        """Samples the next piece; returns it only while verified weights are in place."""
        asked = GenerateRequest(
            group_id=f"chat-{answer.seed:016x}",
            token_ids=np.array([*answer.prompt.tolist(), *answer.tokens], dtype=np.int32),
            seeds=(rollout_seed(answer.seed, "chat", answer.pieces),),
            sampling=_sampling(request, size),
            chat=True,
        )
        for _ in range(_TRIES):
            await self._serving(request.wait_s)
            try:
                (completion,) = await self._engine.generate(asked)
            except AbandonedError as error:
                log.info("chat_piece_again", reason=str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            await self._serving(request.wait_s)
            return completion
        raise ChatEndedError(Kind.KIND_UNAVAILABLE, "the engine aborts the answer again and again")

    async def _serving(self, wait_s: float) -> None:
        """Waits through a publication; raises ChatEndedError if no weights are being served after `wait_s`."""

        def open_or_over() -> bool:
            return self._gate.is_open or self._gate.state in _OVER

        try:
            await self._gate.wait_until(open_or_over, wait_s, "weights that serve")
        except WaitTimeoutError:
            raise ChatEndedError(Kind.KIND_UNAVAILABLE, f"{self._replica_id} is {self._gate.state}") from None
        if not self._gate.is_open:
            raise ChatEndedError(Kind.KIND_UNAVAILABLE, f"{self._replica_id} is {self._gate.state}")

    def _decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _piece(self, answer: _Answer, text: str, reason: str) -> pb.ChatPiece:
        return pb.ChatPiece(
            text=text,
            finish_reason=reason,
            prompt_tokens=len(answer.prompt),
            completion_tokens=len(answer.tokens),
            oldest_version=VERSION.to_pb(answer.versions[0]),
            version=VERSION.to_pb(answer.versions[-1]),
            replica_id=self._replica_id,
        )

    def _refusal(self, kind: "pb.ChatRefusal.Kind.ValueType", reason: str) -> pb.ChatPiece:
        return pb.ChatPiece(replica_id=self._replica_id, refusal=pb.ChatRefusal(kind=kind, reason=reason))


def _sampling(request: pb.ChatRequest, size: int) -> Sampling:
    greedy = request.temperature == 0
    return Sampling(
        temperature=1.0 if greedy else request.temperature,
        top_p=request.top_p or 1.0,
        max_tokens=size,
        stop_token_ids=tuple(request.stop_token_ids),
        greedy=greedy,
    )
