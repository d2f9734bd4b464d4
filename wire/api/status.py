"""The status of a run: `/api/status`."""

from collections.abc import Mapping

from pydantic import ConfigDict, Field

from headrace.wire.api.model import ApiModel, Metrics, Number


class StreamStatus(ApiModel):
    """One stream as of the last housekeeping pass, about once a second."""

    length: int
    """Entries in the stream."""
    pending: int
    """Entries that a consumer has taken and not yet finished."""
    undelivered: int
    """Entries that no consumer has taken."""
    oldest_pending_s: float
    """Age of the oldest pending entry in seconds."""


class EvaluationRow(ApiModel):
    """One evaluation of one version, also a line of `evals.jsonl`; offline stages add numbers of their own.

    Numbers of an evaluation set with a name are `NAME/accuracy` and so on; those below are of one without.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | None]

    version: int
    """Steps done when it was evaluated."""
    accuracy: float | None
    """Share of correct rollouts among the scored ones; None if there are none, or if scores are not just 0 and 1."""
    pass_at_k: float | None = None
    """Share of prompts with k scored rollouts that have a correct one."""
    avg_at_k: float | None = None
    """Mean over these prompts of the share of correct rollouts."""
    k: int | None = None
    """Rollouts of each prompt."""
    prompts: int | None = None
    """Prompts with at least one scored rollout."""
    missing: int | None = None
    """Prompts without a scored rollout."""
    abstained: int | None = None
    """Rollouts that no scorer could score."""
    loss: float | None = None
    """Mean held-out loss of an offline stage."""
    examples: int | None = None
    """Held-out examples of an offline stage."""
    t: Number | None = None
    """Unix seconds; only in the file."""

    @classmethod
    def of(cls, record: Mapping[str, object]) -> "EvaluationRow":
        """The numbers of a line of `evals.jsonl`."""
        numbers = {name: value for name, value in record.items() if value is None or isinstance(value, int | float)}
        return cls.model_validate({"accuracy": None, **numbers})


class Credit(ApiModel):
    """How many groups may be open at once."""

    issued: int
    """Open groups."""
    limit: int
    """0 = unknown: the run has ended."""


class GroupCounts(ApiModel):
    """Groups by fate."""

    issued: int
    trained: int
    dropped: dict[str, int]
    """Reason -> groups."""
    open: int


class TrainerStatus(ApiModel):
    """The trainer's last report of itself."""

    state: str
    """`absent`, `alive` or `finished`."""
    waiting_for: str
    """What it waits for, in words; empty while it works."""
    waiting_since: float | None = None
    """Unix seconds; None while it works."""
    waiting_until: float | None = None
    """Unix seconds at which it gives up waiting; None without a deadline."""
    waiting_share: float
    """Share of the time since the last step spent waiting for a batch, 0 to 1."""
    metrics: Metrics
    """Numbers of its last step."""


class ReplicaStatus(ApiModel):
    """One rollout replica with a live lease."""

    id: str
    address: str
    """host:port of its RolloutService."""
    state: str
    """Lower case: `starting`, `pending_weights`, `serving`, `updating`, `sleeping`, `draining`, `quarantined`."""
    version: str
    """`incarnation.version` of its weights."""
    proof: str
    """How its weights were verified: `proven`, `compared`, `canary`; empty before the first commit."""
    proof_note: str
    """Why the trainer's checksums do not prove its weights, where they should."""
    in_flight_rollouts: int
    waiting_share: float
    """Share of the time since its last heartbeat spent without a prompt, 0 to 1."""
    waiting_for: str
    """What it waits for, in words; empty while it works."""
    waiting_since: float | None
    """Unix seconds; None while it works."""
    seen: float
    """Unix seconds of its last heartbeat."""
    tokens_per_second: float
    publication: str
    """Phase of the publication that waits for it, such as `transfer of 1.7 over gloo`; empty without one."""
    publication_since: float | None = None
    """Unix seconds."""
    publication_until: float | None = None
    """Unix seconds at which the publication goes on without it."""
    route: str
    """Backend that carries its next weights; empty before there is a trainer."""
    route_reason: str
    """Why that is not the best backend; empty if it is."""
    refused: str
    """Why the trainer opens no collective group to it; empty if it does."""
    engine: str


class EpisodeWait(ApiModel):
    """What one episode waits for."""

    id: str
    """Its rollout id; the group's id where a whole group waits for weights."""
    kind: str
    """`tool`, `environment`, `engine`, `slot` or `weights`."""
    waits_for: str
    """In words, such as `the tools search`."""
    since: float
    """Unix seconds."""


class EnvironmentStatus(ApiModel):
    """One environment worker with a live lease."""

    id: str
    slots: int
    """Episodes that it plays at a time."""
    playing: int
    """Episodes in play."""
    waiting: int
    """Episodes that wait for a slot, and groups that wait for weights."""
    seen: float
    """Unix seconds of its last report."""
    waits: tuple[EpisodeWait, ...]
    """The longest first, at most 16."""
    notes: tuple[str, ...]
    """What people should know, such as a high share of abstentions."""


class PublicationStatus(ApiModel):
    """The publication that the trainer waits for."""

    version: str
    """`incarnation.version`."""
    phase: str
    """`prepare`, `transfer`, `verify` or `commit`."""
    waiting_for: str
    """Replicas that have not answered yet, joined by commas."""
    seconds: float
    """Since the phase began."""
    since: float
    """Unix seconds at which the phase began."""
    deadline_s: float
    """Seconds that the phase may take."""
    routes: dict[str, str]
    """Replica -> backend."""


class RunIdentity(ApiModel):
    """Which run it is."""

    id: str
    run_dir: str
    name: str
    """Name of the run directory."""
    began: float | None
    """Unix seconds of its first event; None before its files are read."""
    ended: float | None = None
    """Unix seconds of its last event or step; None while it runs."""


class OperatorStatus(ApiModel):
    """Requests of operators that are in force."""

    paused: bool
    stopping: bool
    checkpoint_asked: bool
    draining: tuple[str, ...]
    """Replicas."""


class Bottleneck(ApiModel):
    """The side that limits the run."""

    side: str
    """`trainer`, `rollout`, `reward` or `none`."""
    text: str
    """One line for people; may be empty."""


class UnreachablePeer(ApiModel):
    """A peer that a process of the run has not reached for some seconds."""

    who: str
    """The process, such as `trainer` or `rollout-1`."""
    peer: str
    """`orchestrator`, `broker` or the name of another peer."""
    address: str
    error: str
    """The last one, in words."""
    since: float
    """Unix seconds."""


class RunProgress(ApiModel):
    """What the orchestrator's loops know of the run."""

    state: str
    """`starting`, `running`, `finished`, `failed` or `stopped`."""
    reason: str
    """Why it failed or stopped; else empty."""
    step: int
    """Steps done."""
    max_steps: int
    version: int
    """The version of the trainer's weights: steps done."""
    incarnation: int
    """Number of the trainer's life; 0 = none has registered."""
    eval: tuple[EvaluationRow, ...]
    """Evaluations, oldest first."""
    evaluating: str
    """What the evaluation in progress waits for, in words; empty without one."""
    evaluating_since: float | None = None
    """Unix seconds."""
    evaluating_until: float | None = None
    """Unix seconds."""
    waiting_for: str
    """What the issuer waits for, in words; empty while it issues."""
    waiting_since: float | None = None
    """Unix seconds."""
    waiting_until: float | None = None
    """Unix seconds; None without a deadline."""
    credit: Credit
    groups: GroupCounts
    trainer: TrainerStatus
    replicas: tuple[ReplicaStatus, ...]
    streams: dict[str, StreamStatus]
    """Stream name -> its entry counts."""
    publication: PublicationStatus | None
    """None while nothing is published."""
    environments: tuple[EnvironmentStatus, ...] = ()
    """Environment workers with a live lease, by id."""
    unreachable: tuple[UnreachablePeer, ...] = ()
    """What processes cannot reach now, as far as the orchestrator sees their part of the run directory."""


class RunStatus(RunProgress):
    """The whole run in one object."""

    run: RunIdentity
    operator: OperatorStatus
    now: float
    """Unix seconds of the orchestrator's clock."""
    bottleneck: Bottleneck
    step_seconds: float | None = None
    """Median seconds from step to step of the newest steps; None before the second."""
    averages: Metrics = Field(default_factory=dict)
    """Means over the steps of a run that has ended; empty while it runs."""
