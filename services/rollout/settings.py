"""What the rollout service may be told."""

from typing import Literal

from pydantic import Field

from wire.settings import SamplingTable, ServiceSettings, Table


class RolloutTable(Table):
    """`[rollout]`: replicas and their engine."""

    engine: Literal["torch"] = "torch"
    """`torch` is embedded: Llama and Qwen models on a CPU or one GPU."""
    replicas: int = Field(1, ge=1)
    """Processes of this service; `headrace` starts them."""
    deterministic: bool = False
    """One group decoded at a time at a fixed shape: a rollout made again has equal bits. Slower."""
    max_rows: int = Field(64, ge=1)
    """Rollouts decoded at the same time by one replica."""
    context_length: int = Field(0, ge=0)
    """Prompt and completion together; 0 = what the model was made for."""
    in_flight: Literal["retract", "drain", "in_place"] = "retract"
    """Running rollouts at a publication: prefixes recomputed, ended first, or kept with their old keys and values."""
    sampling: SamplingTable = SamplingTable()
    """Of training rollouts."""
    hold_s: float = Field(5.0, ge=0)
    """A prompt that asks for newer weights is held so long, then handed back: their publication is under way."""
    heartbeat_s: float = Field(1.0, gt=0)
    """Time between two reports to the orchestrator."""
    engine_timeout_s: float = Field(60.0, gt=0)
    """The engine has broken down when it does not answer for so long."""


class RolloutSettings(ServiceSettings):
    """All the rollout service may be told. Built once in `__main__`, passed down, never looked up."""

    rollout: RolloutTable = RolloutTable()
