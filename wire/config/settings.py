"""Settings: one `run.toml`, one table a concern, read once in `__main__` and passed down.

Order of precedence: arguments, environment (`HEADRACE_` + table + `__` + key), the file, defaults. Unknown keys are
errors. The shared tables are here; each service declares its own table in its `settings.py`.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headrace.wire.contracts.ids import check_run_id
from headrace.wire.contracts.messages import KEPT_IDS
from headrace.wire.contracts.reasons import StalePolicy

_NAME_LENGTH = 12
"""Length of the host name of a container."""


class Table(BaseModel):
    """A table of the config: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class RunTable(Table):
    """`[run]`: what the whole run shares."""

    id: str = "run"
    """Names the run's streams; a-z, 0-9, _ and -."""
    stage: Literal["rl", "sft", "reward_model", "dpo"] = "rl"
    """What `headrace train` does: the RL loop with all services, or one of the stages that train on given examples."""
    seed: int = Field(0, ge=0)
    """Determines the order of the prompts, initial states and every rollout's seed."""
    max_steps: int = Field(100, ge=0)
    """A run of the stage `rl` ends after this many optimizer steps in total (also after `--resume`); 0 = it only
    evaluates."""
    max_staleness: int = Field(1, ge=0)
    """No trained token may be older than this many policy versions; 0 = strictly on-policy. With `stale = "late"` it
    bounds what is issued, not the age of what is trained."""
    stale: StalePolicy = "wait"
    """At `max_staleness` of 1 and more: `wait` trains groups in the order of their issue, and none passes the bound;
    `late` trains those that were issued first among those that have arrived, and all of their tokens: a few may pass
    the bound (see `algorithm.max_token_age`);
    `mask` takes them as they arrive and leaves tokens over the bound out of the loss; `drop` drops a group with such a
    token, which falls on the longest answers. A run directory from before this key goes on as `drop`."""
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """`cpu`, `cuda` or `cuda:N`, of trainer and torch engine."""
    threads: int = Field(1, ge=1)
    """torch threads of each service."""

    def model_post_init(self, _context: object) -> None:
        """Refuses a run id that cannot be a stream prefix."""
        check_run_id(self.id)


class LoraTable(Table):
    """`[model.lora]`: train low-rank adapters beside the model's own weights, which stay as they are."""

    rank: int = Field(0, ge=0)
    """Rank of each adapter; 0 = no adapters, all weights are trained."""
    alpha: int = Field(16, ge=1)
    """An adapter's product is scaled by `alpha / rank`."""
    targets: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), min_length=1
    )
    """Names of the projections that get an adapter."""
    quantize: Literal["none", "nf4"] = "none"
    """`nf4`: the frozen weights are held in 4 bits (QLoRA, arXiv 2305.14314); only adapters are trained and travel."""

    @model_validator(mode="after")
    def _can_train(self) -> "LoraTable":
        if self.quantize != "none" and not self.rank:
            raise ValueError(
                f"quantize = {self.quantize!r} needs rank of 1 or more: 4-bit weights can be neither trained nor "
                "published whole; set model.lora.rank (16 is usual), or quantize = 'none'"
            )
        return self


_PART = r"(layers \d+(-\d*)?|norms|head|embeddings)"


class ModelTable(Table):
    """`[model]`: the policy that is trained."""

    path: Path = Path("model")
    """A Hugging Face model folder with its tokenizer."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the trainer's forward pass and of the engine's weights."""
    fp32_head: bool = False
    """Compute logits in float32 from bfloat16 states and weights, in trainer and engine alike; no effect in float32."""
    trainable: str = Field("all", pattern=rf"^(all|{_PART}(, *{_PART})*)$")
    """The weights that are trained, such as `layers 20-, norms, head`: `layers A-B` (from 0, both included), `norms`,
    `head` and `embeddings`, one tensor where they are tied. The others never change; all are published."""
    lora: LoraTable = LoraTable()

    @property
    def widens_head(self) -> bool:
        """Whether logits have another dtype than the rest of the forward pass."""
        return self.fp32_head and self.dtype != "float32"


class SamplingTable(Table):
    """`[rollout.sampling]`: how training rollouts are sampled."""

    temperature: float = Field(1.0, gt=0)
    """Divides the logits; engine and trainer both compute logprobs at this temperature."""
    top_k: int = Field(0, ge=0)
    """Draw from so many of the likeliest tokens, 512 at most; 0 = off. What a token was drawn from is recorded, and
    trained."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the likeliest tokens up to this share of the mass, and without `top_k` from 512 at most; 1 = off."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Draw from tokens this share as likely as the likeliest or more, without `top_k` from 512 at most; 0 = off."""
    max_tokens: int = Field(128, ge=1)
    """Longest completion; longer ones end with finish reason `length`."""
    forced_lengths_column: str = ""
    """For benchmarks of speed: a data column with one forced completion length for each rollout, which nothing can be
    learned from. For the torch engine."""

    @property
    def most_kept(self) -> int:
        """Most ids that a token is drawn from; 0 = nothing is cut off."""
        is_cut = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return (self.top_k or KEPT_IDS) if is_cut else 0


class BrokerTable(Table):
    """`[broker]`: the Redis or Valkey server."""

    url: str = ""
    """`redis://...`, `rediss://...` (TLS), `redis+sentinel://...` or `unix:///...`; empty = an embedded server, started
    by `headrace`."""
    lease_s: float = Field(30.0, gt=0)
    """Seconds without a renewed claim after which a consumer loses the entry to another."""
    connect_timeout_s: float = Field(10.0, gt=0)
    """Seconds for which a service waits for the server before it gives up."""


class TracingTable(Table):
    """`[tracing]`: OpenTelemetry traces over all services, sent to a collector. Needs the extra `tracing`."""

    endpoint: str = Field("", pattern=r"^(|(http|https|grpc|grpcs)://[^/\s]+(/\S*)?)$")
    """`http://host:4318` (OTLP over HTTP; or https) or `grpc://host:4317` (or grpcs); empty = off."""
    sample_ratio: float = Field(1.0, ge=0, le=1)
    """Share of the groups whose traces are recorded; steps and publications are always recorded."""
    headers_file: Path = Path()
    """File with one header a line (`name: value`) for every export, such as a key; empty = none."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds after which an export is given up; its spans are dropped and counted."""

    @property
    def protocol(self) -> Literal["http", "grpc"]:
        """How the endpoint is spoken to."""
        return "grpc" if self.endpoint.startswith("grpc") else "http"


class BatchTable(Table):
    """`[batch]`: the shape of a step's batch, known to orchestrator and trainer."""

    groups: int = Field(16, ge=1)
    """Groups (prompts) a step."""
    group_size: int = Field(8, ge=1)
    """Rollouts of each prompt."""


class ServiceSettings(Table):
    """Settings that every service has; each adds its own table. Written resolved to RUN/config/SERVICE.json."""

    run: RunTable = RunTable()
    model: ModelTable = ModelTable()
    broker: BrokerTable = BrokerTable()
    batch: BatchTable = BatchTable()
    tracing: TracingTable = TracingTable()
    run_dir: Path = Path("runs/run")
    """The run directory."""
    tokens: Path | None = None
    """Folder with the token of this service's role and the digests of those it accepts; none = RUN/run/tokens."""
    tls: Path | None = None
    """Folder with the certificate of this service's role, its key and the authority; none = gRPC is not encrypted."""
    orchestrator_address: str = "127.0.0.1:7000"
    """host:port of the orchestrator's gRPC server, or unix:PATH."""
    host: str = "127.0.0.1"
    """Address this service binds."""
    announce: str = ""
    """Address that other services reach this one by; empty = `host`."""
    grpc_port: int = Field(0, ge=0, le=65535)
    """0 = any free port."""
    grpc_socket: Path | None = None
    """The unix socket that gRPC listens on in place of `host` and `grpc_port`."""
    http_port: int = Field(0, ge=0, le=65535)
    """Health, metrics and (orchestrator) REST; 0 = a free one."""
    instance: str = "0"
    """Distinguishes the replicas of one service: a number, or a name where something else counts them."""

    @property
    def reach(self) -> str:
        """The address that other services are given."""
        return self.announce or self.host

    @property
    def rpc_host(self) -> str:
        """Where gRPC listens: an address for `grpc_port`, or a socket."""
        if self.grpc_socket:
            return f"unix:{self.grpc_socket}"
        # HTTP stays on loopback where `headrace train` lets other machines in.
        return "0.0.0.0" if self.announce and self.host == "127.0.0.1" else self.host

    def rpc_address(self, port: int) -> str:
        """Where other services find the gRPC server, which listens on `port` unless it has a socket."""
        return self.rpc_host if self.grpc_socket else f"{self.reach}:{port}"

    @property
    def number(self) -> int:
        """The instance as a number; 0 for an instance with a name, which shares no ports or devices with another.

        The name of a container is 12 hexadecimal digits, and may happen to look like a number.
        """
        return int(self.instance) if self.instance.isdecimal() and len(self.instance) < _NAME_LENGTH else 0
