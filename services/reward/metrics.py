"""Every metric the reward service emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS = Counter("headrace_reward_groups", "Groups by how their scoring ended.", ["outcome"])
ROLLOUTS = Counter("headrace_reward_rollouts", "Rollouts scored.")
SECONDS = Histogram("headrace_reward_group_seconds", "Scoring of one group.")
SCORE_MEAN = Gauge("headrace_reward_score_mean", "Mean score of the last group.")
IN_FLIGHT = Gauge("headrace_reward_groups_in_flight", "Groups being scored.")
