"""Chats with a model folder, on the torch engine, without a run."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from google.protobuf import json_format
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headrace.services.rollout.app import make_engine
from headrace.services.rollout.chat.chat import ChatService
from headrace.services.rollout.chat.settings import FolderSettings
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.text import TextDecoder
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ConfigError
from headrace.wire.v1 import rollout_pb2 as pb

INSTALL_S = 60.0
_CLOSE_S = 5.0


async def chat_here(settings: FolderSettings, lines: TextIO, out: TextIO) -> None:
    """Answers the `ChatRequest` of each line, in JSON: by objects with some `text`, the last with `finish_reason`,
    `usage` and `version`; a refused one by an object with an `error`. Raises ConfigError for an unusable folder.
    """
    decoder = TextDecoder(settings.model.path)
    engine = make_engine(settings)
    try:
        version = PolicyVersion(incarnation=0, version=settings.version)
        await engine.adopt(dict(weights_of(settings.model.path)), version, INSTALL_S)
        chat = ChatService(engine, open_gate(version), decoder.tokenizer, replica_id="here", at_once=1)
        while line := await asyncio.to_thread(lines.readline):
            async for piece in chat.answer(json_format.Parse(line, pb.ChatRequest())):
                out.write(json.dumps(_said(piece, settings.version)) + "\n")
                out.flush()
    finally:
        await engine.close(_CLOSE_S)


def _said(piece: pb.ChatPiece, version: int) -> dict[str, object]:
    if piece.HasField("refusal"):
        return {"text": "", "error": piece.refusal.reason}
    usage = {"prompt_tokens": piece.prompt_tokens, "completion_tokens": piece.completion_tokens}
    last = {"finish_reason": piece.finish_reason, "usage": usage, "version": version}
    return {"text": piece.text, **(last if piece.finish_reason else {})}


def open_gate(version: PolicyVersion) -> Gate:
    """A gate behind which these weights serve."""
    gate = Gate()
    gate.move(ReplicaState.PENDING_WEIGHTS)
    gate.move(ReplicaState.UPDATING)
    gate.commit(Serving(version, ""))
    return gate


def weights_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """All tensors of the folder, in one file or several. Raises ConfigError."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"{folder} holds no safetensors: an adapter alone cannot be decoded")
    try:
        for file in files:
            yield from load_file(file).items()
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{folder}: {error}") from error
