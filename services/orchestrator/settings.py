"""Settings of the orchestrator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    WrapSerializer,
)

from headrace.wire.config.settings import SamplingTable, ServiceSettings, Table


class PublicationTable(Table):
    """`[orchestrator.publication]`: a deadline for each phase; a replica that misses one is left out."""

    prepare_s: float = Field(10.0, gt=0)
    """Seconds for a replica to close its gate and open a session."""
    transfer_s: float = Field(120.0, gt=0)
    """Seconds for one transfer of all buckets."""
    verify_s: float = Field(30.0, gt=0)
    """Seconds to install the weights and answer the canary."""
    commit_s: float = Field(10.0, gt=0)
    """Seconds to open the gate."""


class ChatTable(Table):
    """`[orchestrator.chat]`: `/v1/chat/completions` on the current policy."""

    at_once: int = Field(32, ge=0)
    """Concurrent chats; each replica has its own limit, `rollout.chats`. 0 = refuse all chats."""
    wait_s: float = Field(20.0, gt=0)
    """Seconds for which a chat waits for a serving replica, for instance during a publication, before it gets 503."""
    deadline_s: float = Field(300.0, gt=0)
    """Seconds after which an answer is cut off."""


class OrchestratorTable(Table):
    """`[orchestrator]`: leases and looks."""

    replica_lease_s: float = Field(15.0, gt=0)
    """Seconds since its last heartbeat after which a replica counts as gone."""
    reconcile_s: float = Field(60.0, gt=0)
    """Seconds between two looks at open groups: one that was open at both is issued again if no stream holds it."""
    failures_in_row: int = Field(64, ge=1)
    """Consecutive groups that fail generation or scoring before the run ends: nothing would ever be trained."""
    first_replicas: int = Field(0, ge=0)
    """Number of serving replicas before the first prompt is issued; 0 = issue it at once."""
    first_replicas_s: float = Field(600.0, gt=0)
    """Seconds to wait for `first_replicas`; then the run begins with the replicas that serve."""
    trim_s: float = Field(5.0, gt=0)
    """Seconds between two trims of acknowledged entries."""
    http_hosts: tuple[str, ...] = ()
    """Further host names under which pages and API may be requested, such as a proxy's."""
    operator_token_file: Path = Path()
    """A file with a further token of operators for HTTP (`Authorization: Bearer TOKEN`), beside the run's own tokens;
    `.` = none."""
    publication: PublicationTable = PublicationTable()
    chat: ChatTable = ChatTable()


class EvalTable(Table):
    """`[eval]`, or several `[[eval]]`: sets of held-out prompts that take the same rollout path."""

    name: str = Field("", pattern=r"^[A-Za-z0-9_.-]{0,32}$")
    """With several sets each needs one: up to 32 letters, digits, `_`, `.` or `-`. Its numbers are `NAME/...`."""
    path: str = ""
    """A file or `datasets` id with prompts of its own; empty = what `[data]` holds out."""
    split: str = ""
    """Split of the dataset; empty = `test`, or without a `path` what `[data]` holds out."""
    columns: dict[str, str] | None = None
    """For prompts of its own: as `data.columns`, which it replaces."""
    task: str = ""
    """Score with the scorers of this `[reward.tasks]`; empty = as in training."""
    every: int = Field(0, ge=0)
    """Steps between two evaluations; 0 = only before the first step and after the last."""
    first: bool = True
    """Evaluate before the first step."""
    prompts: int = Field(0, ge=0)
    """Use only this many held-out prompts, from the first; 0 = all."""
    k: int = Field(1, ge=1)
    """Rollouts of each prompt: pass@k and avg@k."""
    greedy: bool = True
    """Decode greedily (then k is best left at 1)."""
    temperature: float = Field(1.0, gt=0)
    """Used when not greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Used when not greedy."""
    max_tokens: int = Field(0, ge=0)
    """Longest completion; 0 = `rollout.sampling.max_tokens`."""
    correct_above: float | None = None
    """A rollout with a score above this counts as correct; none = accuracy only where all scores are 0 or 1."""
    component: str = ""
    """Evaluate this component of the score (a scorer's name) instead of the whole."""
    deadline_s: float = Field(120.0, gt=0)
    """Seconds after which an evaluation is closed; missing prompts are reported. Of several sets the largest counts."""

    @property
    def has_own_rows(self) -> bool:
        """Whether its prompts are not what `[data]` holds out."""
        return bool(self.path or self.split)


def _as_list(value: object) -> object:
    """A single table is a list of one: `[eval]`, and `--eval.every 25`."""
    return (value,) if isinstance(value, Mapping | EvalTable) else tuple(value) if isinstance(value, list) else value


def _named_apart(sets: tuple[EvalTable, ...]) -> tuple[EvalTable, ...]:
    names = [one.name for one in sets]
    if len(sets) > 1 and ("" in names or len({*names}) < len(names)):
        raise ValueError("several [[eval]] need a name each, and no two the same one")
    if "rewards" in names:
        raise ValueError('name = "rewards" would be mistaken for the components of a reward: take another')
    return sets or (EvalTable(),)


def _as_written(sets: tuple[EvalTable, ...], rest: SerializerFunctionWrapHandler) -> object:
    """The only set without a name is written as `[eval]`, which options and older builds can change."""
    found: list[object] = list(rest(sets))
    return found[0] if len(sets) == 1 and not sets[0].name else found


EvalSets = Annotated[
    tuple[EvalTable, ...],
    AfterValidator(_named_apart),
    BeforeValidator(_as_list, json_schema_input_type=EvalTable | tuple[EvalTable, ...]),
    WrapSerializer(_as_written),
]
"""`[eval]` or `[[eval]]`."""


def eval_sets(tables: object) -> tuple[EvalTable, ...]:
    """The sets of `[eval]` or `[[eval]]` as a file has them. Raises ValidationError."""
    return TypeAdapter(EvalSets).validate_python(tables)


class OrchestratorSettings(ServiceSettings):
    """All settings of the orchestrator. Built once in `__main__` and passed down explicitly."""

    orchestrator: OrchestratorTable = OrchestratorTable()
    eval: EvalSets = (EvalTable(),)
    sampling: SamplingTable = SamplingTable()
    """Sampling of training rollouts: `[rollout.sampling]`."""
    stop_token_ids: tuple[int, ...] = ()
    """Stop tokens of the tokenizer, determined by `headrace` (the orchestrator has no tokenizer)."""
    greedy_last: int = Field(0, ge=0)
    """Greedily decoded baselines besides the `batch.group_size` rollouts of each training group, as the algorithm
    requires."""
