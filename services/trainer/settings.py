"""What the trainer may be told. Imports no torch: `headrace` reads it to check a config."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from wire.settings import ServiceSettings, Table

FAIL_POINTS = ("before_journal", "after_journal", "after_ack", "after_step", "mid_checkpoint", "before_publish")


class AlgorithmTable(Table):
    """`[algorithm]`: how rewards become a gradient."""

    name: Literal["grpo"] = "grpo"
    """Of the registry in `services.trainer.algorithms.registry`."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The ratio's floor is `1 - clip_low`."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio's ceiling is `1 + clip_high`; above `clip_low` (DAPO: 0.28) it keeps exploration alive."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the frozen reference (the model the run began with) in the loss; 0 loads no reference."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Of the KL per token; k3 is low in variance and never negative."""
    aggregation: Literal[
        "token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"
    ] = "seq-mean-token-mean"
    """From per-token losses to one number; counts are those of the whole optimizer step."""
    norm_length: int = Field(0, ge=0)
    """Divisor of `seq-mean-token-sum-norm`; 0 = the sampling's max_tokens."""
    normalize_std: bool = True
    """Divide advantages by the group's standard deviation (off: Dr. GRPO)."""
    std_eps: float = Field(1e-6, gt=0)
    """Added to that standard deviation."""


class TrainerTable(Table):
    """`[trainer]`: optimizer, batches, checkpoints, publication."""

    learning_rate: float = Field(1e-6, gt=0)
    """Peak of the schedule."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's guard against a division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Of matrices only: norms and biases are not decayed."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the whole gradient; 0 = no clipping."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the learning rate rises to its peak."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warmup; linear and cosine reach 0 at `run.max_steps`."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens (padding included) of one forward pass; the memory dial. Changes no gradient."""
    logprob_chunk: int = Field(256, ge=1)
    """Tokens whose logits over the vocabulary exist at a time."""
    gradient_checkpointing: bool = False
    """Recompute the layers in backward: less memory, more time."""
    memory_fraction: float = Field(1.0, gt=0, le=1)
    """Share of its GPU's memory that the trainer may take; less than 1 where an engine lives on the same device."""
    checkpoint_every: int = Field(10, ge=1)
    """Steps between two checkpoints; the journal covers the steps between."""
    keep_checkpoints: int = Field(2, ge=1)
    """Older ones are removed; one valid one always remains."""
    resume: bool = True
    """Go on from the newest valid checkpoint and the journal; off: refuse a run directory that has them."""
    publish: Literal["broadcast", "disk"] = "broadcast"
    """How weights reach the engines: over collective groups, or always as safetensors in `RUN/weights`."""
    bucket_mib: int = Field(512, ge=1)
    """Size of one transfer."""
    batch_timeout_s: float = Field(1800.0, gt=0)
    """No batch for so long ends the process with a diagnosis."""
    orchestrator_timeout_s: float = Field(120.0, gt=0)
    """How long the orchestrator may be away when the trainer cannot go on without it."""
    publish_timeout_s: float = Field(900.0, gt=0)
    """How long one publication may take, retries included."""
    evaluation_timeout_s: float = Field(600.0, gt=0)
    """How long the trainer stays at the end for evaluations that are still under way."""
    canary_tokens: int = Field(16, ge=2)
    """Length of the prompt that proves each publication."""
    canary_tolerance: float = Field(0.0, ge=0)
    """Largest logprob difference allowed; 0 = 1e-3 in float32, 0.5 in bfloat16."""
    fail_at: str = ""
    """For tests: `after_journal:3` kills the process at that point of step 3."""

    @field_validator("fail_at")
    @classmethod
    def _known_point(cls, value: str) -> str:
        point, _, step = value.partition(":")
        if value and (point not in FAIL_POINTS or not step.isdecimal()):
            raise ValueError(f"{value!r} is not POINT:STEP with a point of {', '.join(FAIL_POINTS)}")
        return value


class SftTable(Table):
    """`[sft]`: a short supervised stage before the RL stage."""

    data: Path = Path("sft.parquet")
    """Columns `prompt_ids` and `completion_ids`, list<int32> each."""
    output: Path = Path("sft-model")
    """A Hugging Face folder is written here."""
    steps: int = Field(100, ge=1)
    """At most so many optimizer steps."""
    target_loss: float = Field(0.0, ge=0)
    """Stop when the loss, averaged over some steps, is at most this; 0 = train all steps."""
    batch_size: int = Field(64, ge=1)
    """Examples an optimizer step; the data is shuffled anew each epoch."""
    learning_rate: float = Field(1e-4, gt=0)
    """Peak of the schedule."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's guard against a division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Of matrices only."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the whole gradient; 0 = no clipping."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the learning rate rises to its peak."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """After the warmup."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens (padding included) of one forward pass."""
    logprob_chunk: int = Field(256, ge=1)
    """Tokens whose logits over the vocabulary exist at a time."""


class TrainerSettings(ServiceSettings):
    """All the RL stage may be told. Built once in `__main__`, passed down, never looked up."""

    algorithm: AlgorithmTable = AlgorithmTable()
    trainer: TrainerTable = TrainerTable()


class SftSettings(ServiceSettings):
    """All the supervised stage may be told; of `[run]` it uses seed, device and threads."""

    sft: SftTable = SftTable()
