"""The whole `run.toml`: every service's tables side by side."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from headrace.config.data import DataTable
from headrace.config.environment_checks import environment_problem
from headrace.config.reward_checks import reward_problem
from headrace.services.environment.settings import EnvironmentTable
from headrace.services.orchestrator.settings import EvalTable, OrchestratorTable
from headrace.services.reward.settings import RewardTable
from headrace.services.rollout.settings import RolloutTable
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.config.checks import critic_problem
from headrace.services.trainer.config.discriminator import DiscriminatorTable
from headrace.services.trainer.config.keys import CriticTable
from headrace.services.trainer.config.stage import DpoTable, RewardModelTable, SftTable, StageTable
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
    """For the kind `text`: a text file, or JSONL with `columns`."""
    columns: tuple[str, ...] = ()
    """Columns of a JSONL file to learn from; empty = each line is text."""
    vocab_size: int = Field(1024, ge=300)
    """For the kind `text`: tokens of the vocabulary."""
    chat_template: str = ""
    """For the kind `text`: its chat template (Jinja), with `<end>` behind each message; empty = none."""
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

    # `headrace.config.settle` resolves `auto` before a service reads it.
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


class RunFile(Table):
    """All tables of a `run.toml`; the one place where they are seen together."""

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
    eval: EvalTable = EvalTable()
    broker: BrokerTable = BrokerTable()
    supervisor: SupervisorTable = SupervisorTable()
    tracing: TracingTable = TracingTable()
    trackers: TrackersTable = TrackersTable()
    sft: SftTable = SftTable()
    reward_model: RewardModelTable = RewardModelTable()
    dpo: DpoTable = DpoTable()

    @model_validator(mode="after")
    def _work_together(self) -> "RunFile":
        reason = (
            critic_problem(self.algorithm, self.critic)
            or _adapter_problem(self)
            or _sampling_problem(self)
            or turns_problem(self)
            or reward_problem(self)
            or environment_problem(self)
        )
        if reason is not None:
            raise ValueError(reason)
        return self


def turns_problem(config: RunFile) -> str | None:
    """Why trainer and engines cannot take turns on their GPUs, with the fix; None if they can, or do not."""
    rollout, trainer = config.rollout, config.trainer
    if rollout.gpu_sharing != "turns":
        return None
    needs = {
        "run.max_staleness = 0: nothing is generated while the trainer steps": config.run.max_staleness == 0,
        "trainer.nodes = 1: the locks of the GPUs are one machine's": trainer.nodes == 1,
        "trainer.backend auto, single or fsdp2: DeepSpeed keeps its own state on the GPU": trainer.backend
        != "deepspeed",
        f"rollout.replicas = trainer.ranks, one replica a GPU; they are {rollout.replicas} and {trainer.ranks}": (
            rollout.replicas == trainer.ranks
        ),
        "rollout.sglang.tp = 1, one replica a GPU": rollout.sglang.tp == 1,
        "a server of its own: those of rollout.sglang.urls are not ours to put to sleep": not rollout.sglang.urls,
        "all weights trained with SGLang (model.lora.rank = 0): it drops its base, and only adapters would come": (
            rollout.engine != "sglang" or config.model.lora.rank == 0
        ),
        f"trainer.turn_timeout_s above eval.deadline_s, which is {config.eval.deadline_s:g}: evaluations end first": (
            trainer.turn_timeout_s > config.eval.deadline_s
        ),
    }
    lacks = [what for what, holds in needs.items() if not holds]
    return f"rollout.gpu_sharing = 'turns' needs {lacks[0]}" if lacks else None


def _sampling_problem(config: RunFile) -> str | None:
    algorithm, critic = config.algorithm, config.critic
    held = critic.pretrain_steps + critic.warmup_steps
    if algorithm.needs_critic and held >= config.run.max_steps:
        return (
            f"critic.pretrain_steps + critic.warmup_steps = {held} leave no step of run.max_steps = "
            f"{config.run.max_steps} in which the policy is trained"
        )
    if algorithm.dynamic_sampling and config.batch.group_size < 2:
        return "algorithm.dynamic_sampling needs batch.group_size of 2 or more: one rollout has nothing to differ from"
    return _draw_problem(config)


def _draw_problem(config: RunFile) -> str | None:
    """Why rollouts of RL would not be drawn from the distribution whose logprobs are recorded and trained."""
    sampling, algorithm = config.rollout.sampling, config.algorithm
    if config.run.stage != "rl":
        return None
    cuts = {"top_p": (sampling.top_p, 1), "top_k": (sampling.top_k, 0)}
    for key, (value, off) in cuts.items():
        if value != off:
            return (
                f"rollout.sampling.{key} = {value:g} draws from a cut-off distribution, whose logprobs no engine "
                f"records: the ratio to the trainer's would silently be wrong; set {key} = {off}, or leave it out "
                "(rollout.sampling.temperature is trained as it is drawn)"
            )
    if sampling.forced_lengths_column and config.rollout.engine == "sglang":
        return 'rollout.sampling.forced_lengths_column: SGLang cannot force a token; set rollout.engine = "torch"'
    if algorithm.greedy_last and sampling.forced_lengths_column:
        return f"algorithm {algorithm.name!r} adds a greedy rollout to each group, which no forced length is given for"
    return None


def _adapter_problem(config: RunFile) -> str | None:
    algorithm, rank = config.algorithm, config.model.lora.rank
    if algorithm.reference == "adapters_off" and algorithm.needs_reference and not rank:
        return (
            "algorithm.reference = 'adapters_off' needs adapters: set model.lora.rank, or reference = 'frozen' for a "
            "copy of the whole model"
        )
    if algorithm.reference_reset_every and rank:
        return (
            "algorithm.reference_reset_every needs all weights trained: with model.lora.rank above 0 the reference is "
            "the model without its adapters, which never changes"
        )
    return None


def stage_table(config: RunFile) -> StageTable:
    """The table of the stage that the config runs. Raises KeyError for the RL stage, which has none."""
    tables: dict[str, StageTable] = {"sft": config.sft, "reward_model": config.reward_model, "dpo": config.dpo}
    return tables[config.run.stage]
