"""Every metric the reward service emits."""

from prometheus_client import Counter, Gauge, Histogram

GROUPS = Counter(
    "headrace_reward_groups", "Groups by outcome in this process: settled, handed_back, failed, buried.", ["outcome"]
)
ROLLOUTS = Counter("headrace_reward_rollouts", "Rollouts scored.")
SECONDS = Histogram("headrace_reward_group_seconds", "Scoring of one group.")
ABSTAINED = Counter("headrace_reward_abstained", "Rollouts that could not be scored.")
OUTPUT_DROPPED = Counter(
    "headrace_reward_output_dropped_bytes", "Bytes printed by users' scorers beyond what the log keeps."
)
SCORE_MEAN = Gauge("headrace_reward_score_mean", "Mean score of the last group that has one.")
SCORER_SECONDS = Histogram("headrace_reward_scorer_seconds", "One scorer's work on one group.", ["scorer"])
VERDICTS = Counter(
    "headrace_reward_verdicts", "Verdicts of each scorer: scored, abstained, failed.", ["scorer", "outcome"]
)
REFUSED = Counter("headrace_reward_refused", "Invalid values returned by scorers, by reason.", ["scorer", "kind"])
CIRCUIT_OPEN = Gauge("headrace_reward_circuit_open", "1 while the scorer is down and nothing is consumed.", ["scorer"])
IN_FLIGHT = Gauge("headrace_reward_groups_in_flight", "Groups being scored.")
CAPACITY = Gauge("headrace_reward_groups_capacity", "Groups that this process scores concurrently.")

MATH_REFUSED = Counter(
    "headrace_reward_math_refused",
    "Answers that `math` refuses by their form, whatever their value: restated, unevaluated.",
    ["scorer", "kind"],
)

ENDPOINT_REQUESTS = Counter(
    "headrace_reward_endpoint_requests",
    "Requests to endpoints by outcome; each attempt counts.",
    ["endpoint", "outcome"],
)
ENDPOINT_SECONDS = Histogram("headrace_reward_endpoint_seconds", "One attempt at an endpoint.", ["endpoint"])
ENDPOINT_RETRIES = Counter("headrace_reward_endpoint_retries", "Attempts after the first.", ["endpoint"])

JUDGE_TOKENS = Counter(
    "headrace_reward_judge_tokens", "Tokens of answered requests, by direction: in, out.", ["judge", "direction"]
)
JUDGE_COST = Counter("headrace_reward_judge_cost", "Cost of judges, in the currency of their prices.", ["judge"])
JUDGE_UNMETERED = Counter("headrace_reward_judge_unmetered", "Answers without token counts.", ["judge"])
JUDGE_VERDICTS = Counter("headrace_reward_judge_verdicts", "Answers: read, malformed.", ["judge", "outcome"])
JUDGE_PAIRS = Counter(
    "headrace_reward_judge_pairs",
    "Pairs, both orders: agreed, contradicted, same, failed.",
    ["judge", "outcome"],
)
CANARIES = Counter("headrace_reward_canaries", "Canaries: held, fooled, failed.", ["judge", "outcome"])
CANARY_ALARMS = Counter("headrace_reward_canary_alarms", "Canaries that earned reward from a judge.", ["judge"])

SANDBOX_TESTS = Counter("headrace_reward_sandbox_tests", "Tests run, by outcome: exit, signal, time.", ["ending"])
SANDBOX_FAILURES = Counter("headrace_reward_sandbox_failures", "Sandboxes that died or hung, and were replaced.")

FORWARD_SECONDS = Histogram("headrace_reward_forward_seconds", "One forward pass of a reward model.", ["scorer"])
FORWARD_TOKENS = Counter("headrace_reward_forward_tokens", "Tokens of forward passes, padding included.", ["scorer"])

WORKER_JOBS = Counter(
    "headrace_reward_worker_jobs",
    "Jobs of worker processes, by outcome: done, raised, timeout, starved, died, cancelled.",
    ["outcome"],
)

for _outcome in ("settled", "handed_back", "failed", "buried"):
    GROUPS.labels(_outcome)


def begin_scorer(name: str) -> None:
    """Its series begin at 0, and not with its first failure."""
    CIRCUIT_OPEN.labels(name).set(0)
    SCORER_SECONDS.labels(name)
    for outcome in ("scored", "abstained", "failed"):
        VERDICTS.labels(name, outcome)


def begin_math(name: str) -> None:
    """Its series begin at 0, and not with the first refused answer."""
    for kind in ("restated", "unevaluated"):
        MATH_REFUSED.labels(name, kind)


def begin_canaries(judge: str) -> None:
    """Its series begin at 0, and not with the first alarm."""
    CANARY_ALARMS.labels(judge)
    for outcome in ("held", "fooled", "failed"):
        CANARIES.labels(judge, outcome)
