"""Settings of the rollout service."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headrace.wire.settings import SamplingTable, ServiceSettings, Table

TURN_MEMORY = 0.6
"""Memory share of an SGLang server that takes turns with a trainer on a GPU: a training run that fits into the whole
GPU leaves a quarter of it for the weights of the idle trainer."""


class SGLangTable(Table):
    """`[rollout.sglang]`: the SGLang server of each replica, launched by it or already running."""

    venv: Path = Path()
    """Folder of the virtual environment that has sglang; empty = the one headrace runs in."""
    urls: tuple[str, ...] = ()
    """Attach to running servers, one a replica (`http://host:30000`), in place of launching."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of a launched server; `auto` = the kind of `run.device`."""
    tp: int = Field(1, ge=1)
    """Tensor-parallel ranks of one server."""
    base_gpu_id: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """First GPU of the first replica; each further one takes the next `tp`. `auto`: where `headrace train` starts
    trainer and servers, the first behind the trainer's (with `trainer.memory_fraction` below 1 the trainer's first); in
    a container, which sees only its own GPUs, 0."""
    mem_fraction_static: float = Field(0.0, ge=0, lt=1)
    """Share of the device's memory for weights and cache; 0 = SGLang's choice (0.1 on a CPU; 0.6 with
    `rollout.gpu_sharing = "turns"`, where the trainer's weights stay)."""
    max_running_requests: int = Field(0, ge=0)
    """Most requests that the server decodes at the same time; 0 = `rollout.max_rows` and one for the canary."""
    max_total_tokens: int = Field(0, ge=0)
    """Tokens in the cache of keys and values; 0 = SGLang's choice (65536 on a CPU)."""
    port: int = Field(0, ge=0, le=65535)
    """Port of the first replica's server, the others follow; 0 = a free one."""
    api_key_file: Path = Path()
    """File with the key for requests; empty = made for each launched server, none for an attached one."""
    admin_key_file: Path = Path()
    """File with the key for weight updates; empty = made for each launched server, none for an attached one."""
    start_timeout_s: float = Field(600.0, gt=0)
    """A server must be ready in so long: it loads and compiles. Its first requests, and its first verification on a GPU
    (600 s at most), have as long again: they compile what is left."""
    request_timeout_s: float = Field(3600.0, gt=0)
    """A rollout that takes longer is handed back. Must exceed a publication: a paused server makes requests wait."""
    extra_args: tuple[str, ...] = ()
    """Further flags of `sglang.launch_server`, as on its command line."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of a launched server."""
    python_path: tuple[Path, ...] = ()
    """Folders on the server's PYTHONPATH; empty = the stand-ins of `deploy/sglang-cpu` on a CPU, none on a GPU."""
    nccl_version: str = ""
    """NCCL version of an attached server, such as `2.28.9`: unequal versions take another way. Empty = not known."""
    devices: tuple[str, ...] = ()
    """GPU UUIDs of an attached server; empty = not known, weights then never travel by NCCL."""

    def first_gpu(self, number: int) -> int:
        """Index of the first GPU of the replica with this number."""
        return (0 if self.base_gpu_id == "auto" else self.base_gpu_id) + number * self.tp


class RolloutTable(Table):
    """`[rollout]`: replicas and their engine."""

    engine: Literal["torch", "sglang"] = "torch"
    """`torch` is embedded: Llama and Qwen models on a CPU or one GPU. `sglang` drives a server of its own."""
    sglang: SGLangTable = SGLangTable()
    """For `engine = "sglang"`."""
    gpu_sharing: Literal["none", "turns"] = "none"
    """`turns`: trainer and engine share each GPU, and use it one after the other: the engine sleeps while the trainer
    steps. Needs `run.max_staleness = 0`, and one replica a GPU of the trainer."""
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
    """Sampling of training rollouts."""
    chats: int = Field(4, ge=0)
    """Answers of `/v1/chat/completions` that one replica makes at the same time, beside its rollouts; 0 = none."""
    hold_s: float = Field(5.0, ge=0)
    """A prompt that asks for newer weights is held so long, then handed back: their publication is under way."""
    heartbeat_s: float = Field(1.0, gt=0)
    """Time between two reports to the orchestrator."""
    engine_timeout_s: float = Field(60.0, gt=0)
    """The engine has broken down when it does not answer for so long."""


class RolloutSettings(ServiceSettings):
    """All settings of the rollout service. Built once in `__main__` and passed down explicitly."""

    rollout: RolloutTable = RolloutTable()
    greedy_last: int = Field(0, ge=0)
    """Greedily decoded baselines in addition to the `batch.group_size` rollouts of each training group."""

    @property
    def group_rows(self) -> int:
        """Rollouts of a training group, baselines included."""
        return self.batch.group_size + self.greedy_last
