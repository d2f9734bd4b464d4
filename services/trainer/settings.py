"""Settings of the trainer. Imports no torch: `headrace` reads them to check a config."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.checks import critic_problem
from headrace.services.trainer.config.discriminator import DiscriminatorTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.config.trackers import TrackersTable
from headrace.wire.config.settings import ServiceSettings, Table

_TIME = re.compile(r"[1-9]\d*[smh]")


class UpdateKeys(Table):
    """Keys of the optimizer step, in `[trainer]` for RL and in the table of each stage on given examples."""

    learning_rate: float = Field(1e-6, gt=0)
    """Peak of the schedule."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and the second moment."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's epsilon, against division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Applies to matrices only: norms, biases (of experts too) and Mamba's `A_log` are not decayed."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the whole gradient; 0 = no clipping."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises to its peak."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warmup; linear and cosine reach 0 at the last step (RL: `run.max_steps`)."""
    micro_batch_tokens: int = Field(8192, ge=1)
    """Tokens (padding included) of one forward pass; the memory dial. Changes no gradient."""


class ProcessKeys(Table):
    """Keys of `[trainer]` that every stage reads: ranks, backend, checkpoints."""

    backend: Literal["auto", "single", "fsdp2", "deepspeed"] = "auto"
    """How a step is computed: `auto` is `single` on one rank and `fsdp2` on several."""
    ranks: int = Field(1, ge=1)
    """Processes of the trainer on all machines together, one for each GPU. Changes no gradient."""
    cp: int = Field(1, ge=1)
    """Ranks that share the tokens of each row (context parallelism): a divisor of `ranks`, of those of a machine and of
    the model's attention heads. For rows that one GPU cannot hold; FSDP2 only. Changes no gradient."""
    nodes: int = Field(1, ge=1)
    """Machines of the trainer, with equally many ranks on each. All must see the run directory."""
    rendezvous: str = Field("", pattern=r"^(|.+:\d+)$")
    """`host:port` of machine 0, to which the others connect; needed with several `nodes`. A launcher's
    address or `HEADRACE_RENDEZVOUS` wins."""
    rendezvous_timeout_s: float = Field(600.0, gt=0)
    """Seconds for which machines wait for each other at a start."""
    node_timeout_s: float = Field(60.0, gt=0)
    """With several `nodes`: seconds without a heartbeat from a rank after which the trainer ends on all nodes and is
    restarted."""
    zero_stage: Literal[1, 2, 3] = 3
    """For DeepSpeed: 1 shards the optimizer, 2 the gradient too, 3 the weights too."""
    cpu_offload: bool = False
    """For FSDP2 and DeepSpeed: keep weights and optimizer in host memory."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the model's layers: a slow first step, faster ones after. `auto` is true on a GPU with a C compiler and
    Python's headers, unless `rollout.deterministic` is set, with LoRA, with `cp`, on DeepSpeed's stage 3, or in a
    resumed run that began without."""
    collective_timeout_s: float = Field(600.0, gt=0)
    """Seconds to wait for a rank at a collective before the trainer ends and is restarted."""
    optimizer: Literal["adamw", "adamw_8bit", "muon"] = "adamw"
    """`adamw_8bit` stores its moments in 8 bits (bitsandbytes); `muon` orthogonalizes the updates of matrices."""
    gradient_checkpointing: bool = False
    """Recompute the layers in backward: less memory, more time."""
    memory_fraction: float = Field(1.0, gt=0, le=1)
    """Share of its GPU's memory that the trainer may use; below 1 if an engine uses the same device."""
    peak_tflops: float = Field(0.0, ge=0)
    """Dense bfloat16 TFLOP/s of one GPU, the peak for MFU; 0 = looked up by the GPU's name, without MFU if unknown."""
    checkpoint_every: int | str = "10m"
    """Steps between two checkpoints, or a time such as `"10m"` (`s`, `m`, `h`); the journal covers the steps between.
    With `rollout.deterministic` 10 steps unless given."""
    checkpoint_deadline_s: float = Field(1800.0, gt=0)
    """Seconds that a checkpoint should take at most. A longer one continues, but counts as time without a step."""
    keep_checkpoints: int = Field(2, ge=1)
    """Number of checkpoints to keep; older ones are removed, but one valid checkpoint always remains."""
    resume: bool = True
    """Continue from the newest valid checkpoint and the journal; false: refuse a run directory that has them."""

    @model_validator(mode="after")
    def _spread_equally(self) -> "ProcessKeys":
        if self.ranks % self.nodes:
            raise ValueError(
                f"ranks = {self.ranks} (all machines together) is no multiple of nodes = {self.nodes}: each machine "
                f"has equally many; take {max(self.ranks // self.nodes, 1) * self.nodes}"
            )
        if self.ranks // self.nodes % self.cp:
            raise ValueError(
                f"cp = {self.cp} does not divide ranks / nodes = {self.ranks // self.nodes}: ranks of one machine "
                "share the tokens of their rows"
            )
        if self.cp > 1 and self.backend not in ("auto", "fsdp2"):
            raise ValueError(f"cp = {self.cp} needs backend 'fsdp2' or 'auto', not {self.backend!r}")
        return self

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints; 0 if a time is configured."""
        return self.checkpoint_every if isinstance(self.checkpoint_every, int) else 0

    @property
    def checkpoint_seconds(self) -> float:
        """Seconds between two checkpoints; 0 if steps are configured."""
        every = self.checkpoint_every
        return 0.0 if isinstance(every, int) else float(every[:-1]) * {"s": 1, "m": 60, "h": 3600}[every[-1]]

    @field_validator("checkpoint_every")
    @classmethod
    def _steps_or_time(cls, value: int | str) -> int | str:
        if (isinstance(value, str) and _TIME.fullmatch(value)) or (isinstance(value, int) and value >= 1):
            return value
        raise ValueError(f'{value!r}: give a number of steps such as 20, or a time such as "10m" (s, m or h)')

    @field_validator("rendezvous")
    @classmethod
    def _port_exists(cls, value: str) -> str:
        if value and not 1 <= int(value.rpartition(":")[2]) <= 65535:
            raise ValueError(f"{value!r}: a port is a number from 1 to 65535")
        return value


class TrainerTable(UpdateKeys, ProcessKeys):
    """`[trainer]`: optimizer, batches, checkpoints, publication."""

    logprob_chunk: int = Field(0, ge=0)
    """Tokens whose logits over the vocabulary are in memory at the same time; 0 = 256 on a CPU, 2048 on a GPU."""
    keep_rollouts_mib: int = Field(10240, ge=0)
    """Size limit of `RUN/rollouts`; the oldest steps are removed beyond it. 0 = keep all."""
    disk_reserve_mib: int = Field(64, ge=0)
    """Free MiB that must remain beside the batch when a step is journaled: without them the run pauses, for
    `batch_timeout_s` at most. 0 = no reserve."""
    publish: Literal["broadcast", "disk"] = "broadcast"
    """How weights reach the engines: over collective groups, or always as safetensors in `RUN/weights`."""
    bucket_mib: int = Field(512, ge=1)
    """Size of one transfer; tensors that must arrive together (the experts of a layer, its attention) may be larger."""
    batch_timeout_s: float = Field(1800.0, gt=0)
    """Seconds without a batch after which the process ends with a diagnosis."""
    orchestrator_timeout_s: float = Field(120.0, gt=0)
    """Seconds for which the orchestrator may be unreachable when the trainer cannot continue without it."""
    turn_timeout_s: float = Field(1800.0, gt=0)
    """With `rollout.gpu_sharing = "turns"`: seconds for which the engines may keep the GPU once the batch is complete.
    Must exceed `eval.deadline_s`."""
    publish_timeout_s: float = Field(900.0, gt=0)
    """Seconds for one publication, including retries."""
    evaluation_timeout_s: float = Field(600.0, gt=0)
    """Seconds for which the trainer waits at the end for evaluations in progress."""
    canary_tokens: int = Field(16, ge=2)
    """Length of the canary prompt that verifies each publication."""
    canary_tolerance: float = Field(0.0, ge=0)
    """Largest logprob difference allowed; 0 = 1e-3 in float32, 0.5 in bfloat16."""


class TrainerSettings(ServiceSettings):
    """All settings of the RL stage. Built once in `__main__` and passed down, never looked up."""

    node: int = Field(0, ge=0)
    """Which of `trainer.nodes` machines this is."""
    takes_turns: bool = False
    """Its GPUs are the engines' too, one after the other: `rollout.gpu_sharing`."""
    max_tokens: int = Field(128, ge=1)
    """Most tokens of a rollout: `rollout.sampling.max_tokens`."""
    task_column: str = ""
    """Column of a prompt's row that names its data source: `reward.task_column`."""
    context_length: int = Field(0, ge=0)
    """Most tokens of prompt and completion: `rollout.context_length`; 0 = the model's own limit."""
    algorithm: AlgorithmTable = AlgorithmTable()
    critic: CriticTable = CriticTable()
    discriminator: DiscriminatorTable = DiscriminatorTable()
    trainer: TrainerTable = TrainerTable()
    trackers: TrackersTable = TrackersTable()

    @property
    def code_dir(self) -> Path:
        """The run directory whose copy of `algorithm.path` is imported."""
        return self.run_dir

    @property
    def ids_dir(self) -> Path:
        """The run directory, or a folder with the same names in it, that has the kept ids of what is trained."""
        return self.run_dir

    @model_validator(mode="after")
    def _works(self) -> "TrainerSettings":
        reason = critic_problem(self.algorithm, self.critic)
        if reason is not None:
            raise ValueError(reason)
        return self
