"""Settings of the orchestrator."""

from pathlib import Path

from pydantic import Field

from headrace.wire.settings import SamplingTable, ServiceSettings, Table


class PublicationTable(Table):
    """`[orchestrator.publication]`: a deadline for each phase; who misses one is left out, the others go on."""

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
    """Chats under way at the same time; each replica has a bound of its own, `rollout.chats`. 0 = none are answered."""
    wait_s: float = Field(20.0, gt=0)
    """How long a chat waits for a replica that serves, through a publication say, before it is refused with 503."""
    deadline_s: float = Field(300.0, gt=0)
    """An answer that takes longer is broken off."""


class OrchestratorTable(Table):
    """`[orchestrator]`: leases and looks."""

    replica_lease_s: float = Field(15.0, gt=0)
    """A replica whose last heartbeat is older is gone."""
    reconcile_s: float = Field(60.0, gt=0)
    """A group that is open for so long without news is looked for in the streams, and issued again if it is in none."""
    failures_in_row: int = Field(64, ge=1)
    """So many groups in a row that could not be generated or scored end the run: nothing would ever be trained."""
    first_replicas: int = Field(0, ge=0)
    """The run's first prompt is issued when so many replicas serve; 0 = at once, to whoever is there."""
    first_replicas_s: float = Field(600.0, gt=0)
    """After so long the run begins with those that are there."""
    trim_s: float = Field(5.0, gt=0)
    """Time between two trims of what is acked."""
    http_hosts: tuple[str, ...] = ()
    """Host names, beside those of this service, under which its pages and API may be asked for: a proxy's."""
    operator_token_file: Path = Path()
    """A file with a token: whoever acts over HTTP must send it (`Authorization: Bearer TOKEN`); `.` = nobody must."""
    publication: PublicationTable = PublicationTable()
    chat: ChatTable = ChatTable()


class EvalTable(Table):
    """`[eval]`: held-out prompts through the same rollout path."""

    every: int = Field(0, ge=0)
    """Steps between two evaluations; 0 = only before the first step and after the last."""
    prompts: int = Field(0, ge=0)
    """Use only the first so many held-out prompts; 0 = all."""
    k: int = Field(1, ge=1)
    """Rollouts of each prompt: pass@k and avg@k."""
    greedy: bool = True
    """Decode greedily (then k is best left at 1)."""
    temperature: float = Field(1.0, gt=0)
    """Used when not greedy."""
    correct_above: float = 0.5
    """A rollout whose score is above it counts as correct."""
    component: str = ""
    """Look at this component of the score (a scorer's name) in place of the whole."""
    deadline_s: float = Field(120.0, gt=0)
    """An evaluation that takes longer is closed; missing prompts are reported."""


class OrchestratorSettings(ServiceSettings):
    """All settings of the orchestrator. Built once in `__main__` and passed down explicitly."""

    orchestrator: OrchestratorTable = OrchestratorTable()
    eval: EvalTable = EvalTable()
    sampling: SamplingTable = SamplingTable()
    """Sampling of training rollouts: `[rollout.sampling]`."""
    stop_token_ids: tuple[int, ...] = ()
    """Stop tokens of the tokenizer, determined by `headrace` (the orchestrator has no tokenizer)."""
    greedy_last: int = Field(0, ge=0)
    """Greedily decoded baselines besides the `batch.group_size` rollouts of each training group, as the algorithm
    requires."""
