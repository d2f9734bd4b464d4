"""The tables of `run.toml`, side by side."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from headrace.config.data import DataTable
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.orchestrator.settings import EvalSets, EvalTable, OrchestratorTable
from headrace.services.reward.settings import RewardTable
from headrace.services.rollout.settings import RolloutTable
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.discriminator import DiscriminatorTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.config.stage import DpoTable, RewardModelTable, SftTable
from headrace.services.trainer.config.trackers import TrackersTable
from headrace.services.trainer.settings import TrainerTable
from headrace.wire.config.settings import BatchTable, BrokerTable, ModelTable, RunTable, Table, TracingTable


class Ports(Table):
    """Fixed ports of a service on this machine; of several replicas the first one's, the others follow."""

    grpc_port: int = Field(0, ge=0, le=65535)
    """0 = a unix socket that your user alone may enter; with `HEADRACE_TLS` any free port."""
    http_port: int = Field(0, ge=0, le=65535)
    """0 = any free port."""


class OrchestratorSection(Ports, OrchestratorTable):
    """`[orchestrator]`."""


class EnvironmentSection(Ports, EnvironmentTable):
    """`[environment]`."""


class RewardSection(Ports, RewardTable):
    """`[reward]`."""


class RolloutSection(Ports, RolloutTable):
    """`[rollout]`."""


class TrainerSection(Ports, TrainerTable):
    """`[trainer]`."""


class MakeTable(Table):
    """`[model.make]`: a tiny Qwen3 model of random weights, made in RUN/model when `model.path` is not given."""

    kind: Literal["characters", "text"] = "characters"
    """Its tokenizer: one token a character, or byte-level BPE learned from a text."""
    characters: str = "0123456789+="
    """For the kind `characters`: every character of prompts and completions."""
    text: Path = Path()
    """For the kind `text`: a text file, or a data file as [data] reads."""
    columns: tuple[str, ...] = ()
    """Columns of a data file to learn from; empty = all that hold text."""
    vocab_size: int = Field(1024, ge=300)
    """For the kind `text`: tokens of the vocabulary."""
    chat_template: str = ""
    """For the kind `text`: its chat template (Jinja), with `<end>` after each message; empty = one that writes
    roles, texts and calls of tools."""
    seed: int = Field(0, ge=0)
    """Seed of the weights."""
    hidden: int = Field(128, ge=8)
    """Width of the model."""
    intermediate: int = Field(384, ge=8)
    """Width of the feed-forward layers."""
    layers: int = Field(3, ge=1)
    """Transformer layers."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    kv_heads: int = Field(2, ge=1)
    """Heads of keys and values; divides `heads`."""
    head_dim: int = Field(32, ge=2, multiple_of=2)
    """Width of a head."""
    context: int = Field(1024, ge=8)
    """Longest prompt and completion together."""

    @model_validator(mode="after")
    def _can_be_made(self) -> "MakeTable":
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads = {self.kv_heads} must divide heads = {self.heads}")
        if len(set(self.characters)) != len(self.characters) or not self.characters:
            raise ValueError(f"characters = {self.characters!r} must be different ones, at least one")
        if self.chat_template and self.kind != "text":
            raise ValueError('chat_template needs kind = "text": one character a token has no token for <end>')
        return self


class ModelSection(ModelTable):
    """`[model]`."""

    # `headrace.config.resolve` settles `auto` before a service reads it.
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # type: ignore[assignment]
    """Precision of the trainer's forward pass and of the engine's weights. `auto`: `bfloat16` if `run.device` is a GPU,
    else `float32`; decided when the run directory is made, and kept by every resume."""
    path: Path = Path("model")
    """A Hugging Face model folder with its tokenizer, or the id of one on the Hub (`OWNER/NAME`) where there is no such
    folder: it is fetched once into HF_HOME, and the folder stands here from then on."""
    revision: str = ""
    """For a model of the Hub: a commit, tag or branch, empty = `main`; replaced by the commit once the run directory
    exists."""
    hub: str = ""
    """The Hub id from which `path` was downloaded. Set by `headrace`."""
    make: MakeTable | None = None
    """Make a tiny model for this run when `path` is not given; a given path wins."""

    @property
    def hub_id(self) -> str | None:
        """The id of a model that is not fetched yet; paths of folders are absolute once the config is resolved."""
        return None if self.path.is_absolute() else self.path.as_posix()


class SupervisorTable(Table):
    """`[supervisor]`: how `headrace train` looks after the processes on this machine."""

    ready_s: float = Field(900.0, gt=0)
    """Seconds for a process to be ready. A process that is late ends the run, or is restarted if it was ready
    before."""
    liveness_s: float = Field(60.0, ge=0)
    """Seconds without an answer after which a process that was ready is killed and restarted; 0 = never."""


class RunTables(Table):
    """All tables of a `run.toml`, each checked by itself."""

    run: RunTable = RunTable()
    model: ModelSection = ModelSection()
    data: DataTable
    batch: BatchTable = BatchTable()
    algorithm: AlgorithmTable = AlgorithmTable()
    critic: CriticTable = CriticTable()
    discriminator: DiscriminatorTable = DiscriminatorTable()
    rollout: RolloutSection = RolloutSection()
    environment: EnvironmentSection = EnvironmentSection()
    reward: RewardSection = RewardSection()
    trainer: TrainerSection = TrainerSection()
    orchestrator: OrchestratorSection = OrchestratorSection()
    eval: EvalSets = (EvalTable(),)
    """Held-out prompts: one set, `[eval]`, or several `[[eval]]` with names."""
    broker: BrokerTable = BrokerTable()
    supervisor: SupervisorTable = SupervisorTable()
    tracing: TracingTable = TracingTable()
    trackers: TrackersTable = TrackersTable()
    sft: SftTable = SftTable()
    reward_model: RewardModelTable = RewardModelTable()
    dpo: DpoTable = DpoTable()
