"""One chat with a model folder, on the torch engine, without a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headrace.services.rollout.app import make_engine
from headrace.services.rollout.chat.chat import ChatService
from headrace.services.rollout.chat.settings import ChatOnceSettings
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.text import TextDecoder
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ConfigError
from headrace.wire.v1 import rollout_pb2 as pb

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INSTALL_S = 60.0
_CLOSE_S = 5.0


async def chat_once(settings: ChatOnceSettings) -> dict[str, object]:
    """Returns `text`, `finish_reason`, `usage` and `version`. Raises ConfigError for an unusable folder or chat."""
    table = settings.chat
    decoder = TextDecoder(settings.model.path)
    engine = make_engine(settings)
    try:
        version = PolicyVersion(incarnation=0, version=table.version)
        await engine.adopt(dict(weights_of(settings.model.path)), version, INSTALL_S)
        gate = open_gate(version)
        chat = ChatService(engine, gate, decoder.tokenizer, replica_id="here", at_once=1)
        pieces = [piece async for piece in chat.answer(_request(settings, decoder.tokenizer))]
    finally:
        await engine.close(_CLOSE_S)
    last = pieces[-1]
    if last.HasField("refusal"):
        raise ConfigError(last.refusal.reason)
    return {
        "text": "".join(piece.text for piece in pieces),
        "finish_reason": last.finish_reason,
        "usage": {"prompt_tokens": last.prompt_tokens, "completion_tokens": last.completion_tokens},
        "version": table.version,
    }


def _request(settings: ChatOnceSettings, tokenizer: "PreTrainedTokenizerBase") -> pb.ChatRequest:
    table = settings.chat
    asked = pb.ChatRequest(**table.model_dump(exclude={"version"}, exclude_none=True), wait_s=table.deadline_s)
    if not table.stop_token_ids and tokenizer.eos_token_id is not None:
        asked.stop_token_ids.append(int(tokenizer.eos_token_id))
    return asked


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
