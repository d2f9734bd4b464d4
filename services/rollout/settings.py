"""Settings of the rollout service."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headrace.services.rollout.sglang_refusals import refusal
from headrace.wire.config.settings import SamplingTable, ServiceSettings, Table

TURN_MEMORY = 0.6
"""Memory share of an SGLang server that takes turns with a trainer on a GPU: a training run that fits into the whole
GPU leaves a quarter of it for the weights of the idle trainer."""


class SGLangTable(Table):
    """`[rollout.sglang]`: the SGLang server of each replica, launched by it or already running."""

    venv: Path = Path()
    """Folder of the virtual environment with sglang; empty = the environment of headrace."""
    urls: tuple[str, ...] = ()
    """Attach to running servers, one for each replica (`http://host:30000`), instead of launching them."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of a launched server; `auto` = the kind of `run.device`."""
    tp: int = Field(1, ge=1)
    """Tensor-parallel ranks of one server."""
    base_gpu_id: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """First GPU of the first replica; each further replica takes the next `tp`. `auto`: if `headrace train` starts
    trainer and servers, the first GPU after the trainer's (with `trainer.memory_fraction` below 1 the trainer's first);
    in a container, which sees only its own GPUs, 0."""
    mem_fraction_static: float = Field(0.0, ge=0, lt=1)
    """Share of the device's memory for weights and cache; 0 = SGLang's choice (0.1 on a CPU; 0.6 with
    `rollout.gpu_sharing = "turns"`, because the trainer's weights stay on the GPU)."""
    max_running_requests: int = Field(0, ge=0)
    """Most requests that the server decodes concurrently; 0 = `rollout.max_rows` and one for the canary, or SGLang's
    choice where that is 0 too."""
    max_total_tokens: int = Field(0, ge=0)
    """Tokens in the cache of keys and values; 0 = SGLang's choice (65536 on a CPU)."""
    port: int = Field(0, ge=0, le=65535)
    """Port of the first replica's server, the others follow; 0 = any free port."""
    api_key_file: Path = Path()
    """File with the key for requests; empty = generated for each launched server, none for an attached one."""
    admin_key_file: Path = Path()
    """File with the key for weight updates; empty = generated for each launched server, none for an attached one."""
    start_timeout_s: float = Field(600.0, gt=0)
    """Seconds for a server to load, compile and be ready. Its first requests, and its first verification on a GPU (600
    s at most), get as long again, because they compile further kernels."""
    request_timeout_s: float = Field(3600.0, gt=0)
    """Seconds after which a rollout is handed back. Must exceed a publication: a paused server makes requests wait."""
    extra_args: tuple[str, ...] = ()
    """Further flags of `sglang.launch_server`, as on its command line."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of a launched server."""
    python_path: tuple[Path, ...] = ()
    """Folders on the server's PYTHONPATH; empty = the stand-ins of `deploy/sglang-cpu` on a CPU, none on a GPU."""
    nccl_version: str = ""
    """NCCL version of an attached server, such as `2.28.9`: unequal versions use another route. Empty = unknown."""
    devices: tuple[str, ...] = ()
    """GPU UUIDs of an attached server; empty = unknown, and weights are never sent over NCCL."""

    @model_validator(mode="after")
    def _can_be_given(self) -> "SGLangTable":
        if (reason := refusal(self.extra_args, self.env)) is not None:
            raise ValueError(reason)
        return self

    def first_gpu(self, number: int) -> int:
        """Index of the first GPU of the replica with this number."""
        return (0 if self.base_gpu_id == "auto" else self.base_gpu_id) + number * self.tp


class RolloutTable(Table):
    """`[rollout]`: replicas and their engine."""

    engine: Literal["torch", "sglang"] = "torch"
    """`torch` is embedded: Llama and Qwen models on a CPU or one GPU. `sglang` drives a separate server."""
    sglang: SGLangTable = SGLangTable()
    """For `engine = "sglang"`."""
    gpu_sharing: Literal["none", "turns"] = "none"
    """`turns`: trainer and engine share each GPU and use it one after the other: the engine sleeps while the trainer
    steps. Needs `run.max_staleness = 0`, and one replica for each GPU of the trainer."""
    replicas: int = Field(1, ge=0)
    """Processes of this service that `headrace` starts; 0 = machines that join bring all of them."""
    deterministic: bool = False
    """Decode one group at a time at a fixed shape, so a repeated rollout has equal bits. Slower."""
    max_rows: int = Field(0, ge=0)
    """Most rollouts that one replica decodes concurrently; 0 = 64 (`torch`), the server's own limit (`sglang`)."""
    context_length: int = Field(0, ge=0)
    """Longest prompt and completion together; 0 = the model's own limit."""
    in_flight: Literal["retract", "drain", "in_place"] = "retract"
    """Rollouts in progress at a publication: recompute prefixes, finish them first, or keep their old keys and
    values."""
    sampling: SamplingTable = SamplingTable()
    """Sampling of training rollouts."""
    chats: int = Field(4, ge=0)
    """Answers of `/v1/chat/completions` that one replica generates concurrently, beside its rollouts; 0 = none."""
    hold_s: float = Field(5.0, ge=0)
    """Seconds for which a replica holds a prompt that needs newer weights, while they are published, before handing it
    back."""
    heartbeat_s: float = Field(1.0, gt=0)
    """Time between two reports to the orchestrator."""
    engine_timeout_s: float = Field(60.0, gt=0)
    """Seconds without an answer after which the engine counts as failed."""

    @property
    def torch_rows(self) -> int:
        """Rows of the `torch` engine."""
        return self.max_rows or 64


class RolloutSettings(ServiceSettings):
    """All settings of the rollout service. Built once in `__main__` and passed down explicitly."""

    rollout: RolloutTable = RolloutTable()
    greedy_last: int = Field(0, ge=0)
    """Greedily decoded baselines in addition to the `batch.group_size` rollouts of each training group."""

    @property
    def group_rows(self) -> int:
        """Rollouts of a training group, baselines included."""
        return self.batch.group_size + self.greedy_last
