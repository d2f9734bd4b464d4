"""Every metric the rollout service emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS = Counter(
    "headrace_rollout_groups",
    "Prompt groups by outcome in this process: settled, handed_back, failed, buried.",
    ["outcome"],
)
ROLLOUTS = Counter(
    "headrace_rollout_rollouts", "Rollouts generated, by finish reason: stop, length.", ["finish_reason"]
)
TOKENS = Counter(
    "headrace_rollout_tokens",
    "Tokens by kind: generated (completions), prompt (a group's prompt counts once), recomputed (under new weights).",
    ["kind"],
)
PADDING = Counter(
    "headrace_rollout_padding_tokens", "Padding tokens that the policy sampled within answers; texts leave them out."
)
DECODE_SECONDS = Counter("headrace_rollout_decode_seconds", "Time spent in decode steps.")
BUSY_SECONDS = Counter("headrace_rollout_busy_seconds", "Time in which the engine had work.")
IN_FLIGHT_GROUPS = Gauge("headrace_rollout_groups_in_flight", "Groups taken and not yet settled.")
HELD_GROUPS = Gauge("headrace_rollout_groups_held", "Groups in flight that wait for newer weights.")
CAPACITY_GROUPS = Gauge("headrace_rollout_groups_capacity", "Groups in flight, and those that would be taken now.")
ROWS = Gauge("headrace_rollout_rows", "Most rollouts that the engine decodes concurrently.")
IN_FLIGHT_ROLLOUTS = Gauge("headrace_rollout_rollouts_in_flight", "Rollouts being decoded.")
WAITING_SHARE = Gauge("headrace_rollout_waiting_ratio", "Share of the last seconds without a prompt.")
STATE = Gauge("headrace_rollout_state", "1 for the replica's state, 0 for the others.", ["state"])
VERSION = Gauge("headrace_rollout_policy_version", "Version of the weights that serve.")
UPDATE_SECONDS = Histogram(
    "headrace_rollout_update_seconds",
    "Phases of weight updates (prepare, receive, verify), done or failed.",
    ["phase", "outcome"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250),
)
UPDATES = Counter(
    "headrace_rollout_updates", "Weight updates by outcome: committed, aborted, quarantined, disowned.", ["outcome"]
)
RECEIVED_BYTES = Counter(
    "headrace_rollout_weights_received_bytes", "Weights received, by route: nccl, gloo, disk.", ["route"]
)
TURN_SECONDS = Histogram(
    "headrace_rollout_turn_seconds",
    "Time to give a shared GPU to the trainer (asleep), and to take it back (awake).",
    ["phase"],
    buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50),
)
CANARY_GAP = Gauge(
    "headrace_rollout_canary_gap_nats", "Largest |trainer - engine| logprob of the last canary; infinite if it failed."
)
GROUP_SECONDS = Histogram(
    "headrace_rollout_group_seconds",
    "From a group's submission to its last token.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
)
CHATS = Counter(
    "headrace_rollout_chats",
    "Chats by outcome: answered, refused, late, failed, broken_off (by the client).",
    ["outcome"],
)
SAMPLED_TURNS = Counter(
    "headrace_rollout_sampled_turns",
    "Turns of episodes by outcome: sampled, full (no row was free), refused (no weights, or draining), late "
    "(over its deadline), failed, broken_off (by the caller).",
    ["outcome"],
)
TURNS_IN_FLIGHT = Gauge("headrace_rollout_sampled_turns_in_flight", "Turns of episodes being sampled.")
ENGINE_READS = Counter("headrace_rollout_engine_reads", "Reads of the engine's own metrics: read, failed.", ["outcome"])

GIVEN_UP = Counter("headrace_rollout_groups_given_up", "Groups reported to the trainer as too old to be trained.")
ABORTED = Counter("headrace_rollout_groups_aborted", "Groups whose generation was aborted because they had a fate.")

for _outcome in ("settled", "handed_back", "failed", "buried"):
    GROUPS.labels(_outcome)
for _kind in ("generated", "prompt", "recomputed"):
    TOKENS.labels(_kind)
for _reason in ("stop", "length"):
    ROLLOUTS.labels(_reason)
for _outcome in ("committed", "aborted", "quarantined", "disowned"):
    UPDATES.labels(_outcome)
for _phase in ("prepare", "receive", "verify"):
    for _outcome in ("done", "failed"):
        UPDATE_SECONDS.labels(_phase, _outcome)
for _outcome in ("answered", "refused", "late", "failed", "broken_off"):
    CHATS.labels(_outcome)
for _outcome in ("sampled", "full", "refused", "late", "failed", "broken_off"):
    SAMPLED_TURNS.labels(_outcome)
for _outcome in ("read", "failed"):
    ENGINE_READS.labels(_outcome)
for _change in ("asleep", "awake"):
    TURN_SECONDS.labels(_change)
for _route in ("nccl", "gloo", "disk"):
    RECEIVED_BYTES.labels(_route)
