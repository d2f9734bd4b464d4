"""The rewards behind the rollouts: scorers, judges, endpoints, sandboxes."""

from deploy.grafana.dashboard import Panel, Query, Row
from deploy.grafana.queries import RUN, increase, largest, quantile, rate, recorded

REWARDS = Row(
    "Rewards",
    Panel(
        "Groups being scored",
        "And how many may be at a time. Always full: more reward replicas, or a faster scorer.",
        Query(f"sum by (run) (headrace_reward_groups_in_flight{{{RUN}}})", "in flight"),
        Query(f"sum by (run) (headrace_reward_groups_capacity{{{RUN}}})", "capacity"),
    ),
    Panel(
        "Seconds of each scorer",
        "95 % of the groups were faster.",
        quantile(0.95, "headrace_reward_scorer_seconds", "scorer", "{{scorer}}", where=RUN),
        unit="s",
    ),
    Panel(
        "Verdicts",
        "scored, abstained (cannot judge), failed (raised, timed out, was refused).",
        rate("headrace_reward_verdicts_total", "scorer, outcome", "{{scorer}} {{outcome}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Scorers that are down",
        "1 while a scorer's circuit is open: the rollouts stream is held.",
        largest("headrace_reward_circuit_open", "scorer", "{{scorer}}"),
        unit="none",
        low=0,
        high=1,
        bad_above=1,
    ),
    Panel(
        "Abstentions",
        "Share of the rollouts of the last 15 minutes that no scorer could score.",
        recorded("run:headrace_reward_abstained:ratio15m", "{{run}}"),
        unit="percentunit",
        low=0,
        bad_above=0.05,
    ),
    Panel(
        "Judges",
        "Tokens a second of judges, by direction, and money an hour.",
        rate("headrace_reward_judge_tokens_total", "judge, direction", "{{judge}} {{direction}}", where=RUN),
        Query(
            f"3600 * sum by (run, judge) (rate(headrace_reward_judge_cost_total{{{RUN}}}[$__rate_interval]))",
            "{{judge}} money an hour",
        ),
    ),
    Panel(
        "Canaries of judges",
        "Empty answers sent to judges: held (no reward), fooled (reward!), failed.",
        increase("headrace_reward_canaries_total", "judge, outcome", "{{judge}} {{outcome}}", where=RUN),
        unit="none",
    ),
    Panel(
        "Endpoints",
        "Requests to judges and reward models, each try for itself.",
        rate(
            "headrace_reward_endpoint_requests_total",
            "endpoint, outcome",
            "{{endpoint}} {{outcome}}",
            where=RUN,
        ),
        unit="ops",
    ),
    Panel(
        "Sandbox",
        "Tests of code rewards by how they ended; sandboxes that died and were replaced.",
        rate("headrace_reward_sandbox_tests_total", "ending", "{{ending}}", where=RUN),
        rate("headrace_reward_sandbox_failures_total", "replica", "replaced", where=RUN),
        unit="ops",
    ),
)
