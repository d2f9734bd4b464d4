"""The rewards behind the rollouts: scorers, judges, endpoints, sandboxes."""

from deploy.grafana.dashboard import Panel, Query, Row
from deploy.grafana.queries import RUN, increase, quantile, rate

REWARDS = Row(
    title="Rewards",
    panels=(
        Panel(
            title="Groups being scored",
            description="And how many may be at a time. Always full: more reward replicas, or a faster scorer.",
            queries=(
                Query(expr=f"sum by (run) (headrace_reward_groups_in_flight{{{RUN}}})", legend="in flight"),
                Query(expr=f"sum by (run) (headrace_reward_groups_capacity{{{RUN}}})", legend="capacity"),
            ),
        ),
        Panel(
            title="Seconds of each scorer",
            unit="s",
            description="95 % of the groups were faster.",
            queries=(quantile(0.95, "headrace_reward_scorer_seconds", "scorer", "{{scorer}}", where=RUN),),
        ),
        Panel(
            title="Verdicts",
            unit="ops",
            description="scored, abstained (cannot tell), failed (raised, timed out, was refused).",
            queries=(rate("headrace_reward_verdicts_total", "scorer, outcome", "{{scorer}} {{outcome}}", where=RUN),),
        ),
        Panel(
            title="Scorers that are down",
            unit="none",
            low=0,
            high=1,
            bad_above=1,
            description="1 while a scorer's circuit is open: the rollouts stream is held.",
            queries=(Query(expr=f"max by (run, scorer) (headrace_reward_circuit_open{{{RUN}}})", legend="{{scorer}}"),),
        ),
        Panel(
            title="Abstentions",
            unit="percentunit",
            low=0,
            bad_above=0.05,
            description="Share of the rollouts of the last 15 minutes that nobody could score.",
            queries=(Query(expr=f"run:headrace_reward_abstained:ratio15m{{{RUN}}}", legend="{{run}}"),),
        ),
        Panel(
            title="Judges",
            description="Tokens a second of judges, by direction, and money an hour.",
            queries=(
                rate("headrace_reward_judge_tokens_total", "judge, direction", "{{judge}} {{direction}}", where=RUN),
                Query(
                    expr="3600 * sum by (run, judge) (rate(headrace_reward_judge_cost_total"
                    f"{{{RUN}}}[$__rate_interval]))",
                    legend="{{judge}} money an hour",
                ),
            ),
        ),
        Panel(
            title="Canaries of judges",
            unit="none",
            description="Empty answers sent to judges: held (no reward), fooled (reward!), failed.",
            queries=(increase("headrace_reward_canaries_total", "judge, outcome", "{{judge}} {{outcome}}", where=RUN),),
        ),
        Panel(
            title="Endpoints",
            unit="ops",
            description="Requests to judges and reward models, each try for itself.",
            queries=(
                rate(
                    "headrace_reward_endpoint_requests_total",
                    "endpoint, outcome",
                    "{{endpoint}} {{outcome}}",
                    where=RUN,
                ),
            ),
        ),
        Panel(
            title="Sandbox",
            unit="ops",
            description="Tests of code rewards by how they ended; sandboxes that died and were replaced.",
            queries=(
                rate("headrace_reward_sandbox_tests_total", "ending", "{{ending}}", where=RUN),
                rate("headrace_reward_sandbox_failures_total", "replica", "replaced", where=RUN),
            ),
        ),
    ),
)
