"""Settings of the trainer. Imports no torch: `headrace` reads them to check a config."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headrace.services.trainer.config.algorithm import AlgorithmTable, CriticTable
from headrace.services.trainer.config.checks import critic_problem
from headrace.services.trainer.config.discriminator import DiscriminatorTable
from headrace.services.trainer.config.trackers import TrackersTable
from headrace.wire.settings import ServiceSettings, Table

FAIL_POINTS = ("before_journal", "after_journal", "after_ack", "after_step", "mid_checkpoint", "before_publish")


class TrainerTable(Table):
    """`[trainer]`: optimizer, batches, checkpoints, publication."""

    backend: Literal["auto", "single", "fsdp2", "deepspeed"] = "auto"
    """How a step is computed: `auto` is one device, or FSDP2 on several ranks."""
    ranks: int = Field(1, ge=1)
    """Processes of the trainer on all its machines together, one a GPU. Changes no gradient."""
    nodes: int = Field(1, ge=1)
    """Machines that the ranks are spread over, equally many on each. All of them see the run directory."""
    rendezvous: str = Field("", pattern=r"^(|.+:\d+)$")
    """`host:port` of machine 0, where the others meet it; needed with several `nodes`. `HEADRACE_RENDEZVOUS` wins."""
    rendezvous_timeout_s: float = Field(600.0, gt=0)
    """How long machines wait for each other at a start."""
    node_timeout_s: float = Field(60.0, gt=0)
    """With several `nodes`: a rank that is silent for so long ends the trainer on all of them; it then starts anew."""
    zero_stage: Literal[1, 2, 3] = 3
    """For DeepSpeed: 1 shards the optimizer, 2 the gradient too, 3 the weights too."""
    cpu_offload: bool = False
    """For FSDP2 and DeepSpeed: weights and optimizer are kept in host memory."""
    compile: bool = False
    """Compile the model's layers: a slow first step, faster ones after."""
    collective_timeout_s: float = Field(600.0, gt=0)
    """A rank that does not come to a collective for so long ends the trainer, which then starts anew."""
    optimizer: Literal["adamw", "adamw_8bit", "muon"] = "adamw"
    """`adamw_8bit` holds its moments in 8 bits (bitsandbytes); `muon` orthogonalizes the updates of matrices."""
    learning_rate: float = Field(1e-6, gt=0)
    """Peak of the schedule."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's guard against a division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Applies to matrices only: norms and biases are not decayed."""
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
    peak_tflops: float = Field(0.0, ge=0)
    """Dense bfloat16 TFLOP/s of one GPU, which MFU is a share of; 0 = by its name, and no MFU where that is unknown."""
    checkpoint_every: int = Field(10, ge=1)
    """Steps between two checkpoints; the journal covers the steps between."""
    checkpoint_deadline_s: float = Field(1800.0, gt=0)
    """Longest that a checkpoint should take. It goes on, but it counts as a time without a step from then on."""
    keep_checkpoints: int = Field(2, ge=1)
    """Older ones are removed; one valid one always remains."""
    keep_rollouts_mib: int = Field(10240, ge=0)
    """Size of `RUN/rollouts`, which people read; the oldest steps are removed beyond it. 0 = keep all."""
    resume: bool = True
    """Go on from the newest valid checkpoint and the journal; off: refuse a run directory that has them."""
    publish: Literal["broadcast", "disk"] = "broadcast"
    """How weights reach the engines: over collective groups, or always as safetensors in `RUN/weights`."""
    bucket_mib: int = Field(512, ge=1)
    """Size of one transfer; what must arrive in one (the experts of a layer, its attention) may be larger."""
    batch_timeout_s: float = Field(1800.0, gt=0)
    """No batch for so long ends the process with a diagnosis."""
    orchestrator_timeout_s: float = Field(120.0, gt=0)
    """How long the orchestrator may be away when the trainer cannot go on without it."""
    turn_timeout_s: float = Field(1800.0, gt=0)
    """With `rollout.gpu_sharing = "turns"`: how long the engines may keep the GPU once the batch is there. Must exceed
    `eval.deadline_s`."""
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

    @model_validator(mode="after")
    def _spread_equally(self) -> "TrainerTable":
        if self.ranks % self.nodes:
            raise ValueError(
                f"ranks = {self.ranks} (all machines together) is no multiple of nodes = {self.nodes}: each machine "
                f"has equally many; take {max(self.ranks // self.nodes, 1) * self.nodes}"
            )
        return self

    @field_validator("rendezvous")
    @classmethod
    def _port_exists(cls, value: str) -> str:
        if value and not 1 <= int(value.rpartition(":")[2]) <= 65535:
            raise ValueError(f"{value!r}: a port is a number from 1 to 65535")
        return value

    @field_validator("fail_at")
    @classmethod
    def _known_point(cls, value: str) -> str:
        point, _, step = value.partition(":")
        if value and (point not in FAIL_POINTS or not step.isdecimal()):
            raise ValueError(f"{value!r} is not POINT:STEP with a point of {', '.join(FAIL_POINTS)}")
        return value


class TrainerSettings(ServiceSettings):
    """All settings of the RL stage. Built once in `__main__` and passed down, never looked up."""

    node: int = Field(0, ge=0)
    """Which of `trainer.nodes` machines this is."""
    takes_turns: bool = False
    """Its GPUs are the engines' too, one after the other: `rollout.gpu_sharing`."""
    max_tokens: int = Field(128, ge=1)
    """Most tokens of a rollout: `rollout.sampling.max_tokens`."""
    algorithm: AlgorithmTable = AlgorithmTable()
    critic: CriticTable = CriticTable()
    discriminator: DiscriminatorTable = DiscriminatorTable()
    trainer: TrainerTable = TrainerTable()
    trackers: TrackersTable = TrackersTable()

    @property
    def code_dir(self) -> Path:
        """The run directory whose copy of `algorithm.path` is imported."""
        return self.run_dir

    @model_validator(mode="after")
    def _works(self) -> "TrainerSettings":
        reason = critic_problem(self.algorithm, self.critic)
        if reason is not None:
            raise ValueError(reason)
        return self
