"""Settings of the orchestrator."""

from pathlib import Path

from pydantic import Field

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
    """`[eval]`: held-out prompts through the same rollout path."""

    every: int = Field(0, ge=0)
    """Steps between two evaluations; 0 = only before the first step and after the last."""
    prompts: int = Field(0, ge=0)
    """Use only this many held-out prompts, from the first; 0 = all."""
    k: int = Field(1, ge=1)
    """Rollouts of each prompt: pass@k and avg@k."""
    greedy: bool = True
    """Decode greedily (then k is best left at 1)."""
    temperature: float = Field(1.0, gt=0)
    """Used when not greedy."""
    correct_above: float = 0.5
    """A rollout with a score above this counts as correct."""
    component: str = ""
    """Evaluate this component of the score (a scorer's name) instead of the whole."""
    deadline_s: float = Field(120.0, gt=0)
    """Seconds after which an evaluation is closed; missing prompts are reported."""


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
