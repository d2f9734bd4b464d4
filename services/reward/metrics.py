"""Every metric the reward service emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS = Counter("headrace_reward_groups", "Groups by how their scoring ended.", ["outcome"])
ROLLOUTS = Counter("headrace_reward_rollouts", "Rollouts scored.")
SECONDS = Histogram("headrace_reward_group_seconds", "Scoring of one group.")
ABSTAINED = Counter("headrace_reward_abstained", "Rollouts that could not be scored.")
SCORE_MEAN = Gauge("headrace_reward_score_mean", "Mean score of the last group that has one.")
SCORER_SECONDS = Histogram("headrace_reward_scorer_seconds", "One scorer's work on one group.", ["scorer"])
VERDICTS = Counter(
    "headrace_reward_verdicts", "Verdicts of each scorer: scored, abstained, failed.", ["scorer", "outcome"]
)
REFUSED = Counter("headrace_reward_refused", "Values that no scorer may give, by why.", ["scorer", "kind"])
CIRCUIT_OPEN = Gauge("headrace_reward_circuit_open", "1 while the scorer is down and nothing is consumed.", ["scorer"])
IN_FLIGHT = Gauge("headrace_reward_groups_in_flight", "Groups being scored.")

ENDPOINT_REQUESTS = Counter(
    "headrace_reward_endpoint_requests",
    "Requests to endpoints, each try for itself, by how they ended.",
    ["endpoint", "outcome"],
)
ENDPOINT_SECONDS = Histogram("headrace_reward_endpoint_seconds", "One try at an endpoint.", ["endpoint"])
ENDPOINT_RETRIES = Counter("headrace_reward_endpoint_retries", "Tries after the first.", ["endpoint"])
