"""Every metric the rollout service emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS = Counter("headrace_rollout_groups", "Prompt groups by how they ended here.", ["outcome"])
ROLLOUTS = Counter("headrace_rollout_rollouts", "Rollouts generated, by finish reason.", ["reason"])
GENERATED_TOKENS = Gauge("headrace_rollout_generated_tokens", "Completion tokens sampled since the start.")
PROMPT_TOKENS = Gauge("headrace_rollout_prompt_tokens", "Prompt tokens computed; a group's prompt counts once.")
RECOMPUTED_TOKENS = Gauge("headrace_rollout_recomputed_tokens", "Tokens computed again under new weights.")
DECODE_SECONDS = Gauge("headrace_rollout_decode_seconds", "Time spent in decode steps since the start.")
IN_FLIGHT_GROUPS = Gauge("headrace_rollout_groups_in_flight", "Groups taken and not yet settled.")
IN_FLIGHT_ROLLOUTS = Gauge("headrace_rollout_rollouts_in_flight", "Rollouts being decoded.")
WAITING_SHARE = Gauge("headrace_rollout_waiting_share", "Share of the last heartbeat's time without a prompt.")
STATE = Gauge("headrace_rollout_state", "1 for the replica's state, 0 for the others.", ["state"])
VERSION = Gauge("headrace_rollout_policy_version", "Version of the weights that serve.")
PHASE_SECONDS = Histogram("headrace_rollout_update_seconds", "Phases of weight updates.", ["phase"])
UPDATES = Counter("headrace_rollout_updates", "Weight updates by how they ended.", ["outcome"])
GROUP_SECONDS = Histogram(
    "headrace_rollout_group_seconds",
    "From a group's submission to its last token.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
)
