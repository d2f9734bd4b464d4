"""Settings of one chat with a model folder. Imports no torch: `headrace` writes them."""

from pydantic import Field

from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.config.settings import Table


class ChatOnceTable(Table):
    """`[chat]`: see `ChatRequest` in proto/wire/v1/rollout.proto."""

    messages_json: str
    max_tokens: int = Field(0, ge=0)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    stop: tuple[str, ...] = ()
    seed: int | None = Field(None, ge=0)
    stop_token_ids: tuple[int, ...] = ()
    deadline_s: float = Field(600.0, gt=0)
    version: int = Field(0, ge=0)
    """Version of the weights in the folder: a number of steps."""


class ChatOnceSettings(RolloutSettings):
    """A replica's settings, with the folder as its model, and the chat."""

    chat: ChatOnceTable


class TurnsOnceSettings(RolloutSettings):
    """A replica's settings, with a folder as its model."""

    version: int = Field(0, ge=0)
    """Version of the weights in the folder: a number of steps."""
