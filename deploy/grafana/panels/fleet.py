"""Rollout replicas, their engines, the weights that go to them, GPUs, environments, and the rewards behind them."""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.grafana.panels.environments import ENVIRONMENTS
from deploy.grafana.panels.gpus import GPUS
from deploy.grafana.panels.rewards import REWARDS
from deploy.grafana.queries import REPLICA, RUN, RUN_VARIABLE, each, increase, of_run, quantile, rate, recorded

_REPLICAS = Row(
    "Replicas",
    Panel(
        "Replicas by state",
        "As the orchestrator sees them: those with a live lease.",
        Query(f"sum by (run, state) (headrace_orchestrator_replicas{{{RUN}}})", "{{state}}"),
        stacked=True,
    ),
    Panel(
        "State of each",
        "One line a replica and state, filled while the replica is in it.",
        Query(f"max by (run, replica, state) (headrace_rollout_state{{{REPLICA}}} == 1)", "{{replica}} {{state}}"),
        kind="state-timeline",
        width=16,
    ),
    Panel(
        "Policy version",
        "Of the weights that serve, beside the trainer's. 0: none yet.",
        each("headrace_rollout_policy_version"),
        of_run("headrace_trainer_policy_version", "trainer"),
    ),
    Panel(
        "Version spread",
        "Versions that the slowest serving replica is behind the trainer; staleness allows so many.",
        recorded("run:headrace_policy_version:spread", "behind"),
        of_run("headrace_orchestrator_max_staleness_versions", "allowed"),
    ),
    Panel(
        "Utilization",
        "Groups in flight of those that replicas take at a time: what to scale on.",
        Query(
            f"headrace_rollout_groups_in_flight{{{REPLICA}}} / headrace_rollout_groups_capacity{{{REPLICA}}}",
            "{{replica}}",
        ),
        recorded("run:headrace_rollout_utilization:ratio", "all"),
        unit="percentunit",
        low=0,
    ),
)

_WORK = Row(
    "Work",
    Panel(
        "Generated tokens a second",
        "Completion tokens of each replica.",
        rate("headrace_rollout_tokens_total", "replica", "{{replica}}", where=f'{REPLICA}, kind="generated"'),
        stacked=True,
    ),
    Panel(
        "Tokens by kind",
        "Prompts count once a group; recomputed ones are the price of new weights in mid-rollout.",
        rate("headrace_rollout_tokens_total", "kind", "{{kind}}"),
        stacked=True,
    ),
    Panel("Rollouts in flight", "Being decoded now.", each("headrace_rollout_rollouts_in_flight"), stacked=True),
    Panel(
        "Without a prompt",
        "Share of the time of late.",
        each("headrace_rollout_waiting_ratio"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Seconds a group",
        "From submission to the group's last token: the long tail holds batches up.",
        quantile(0.5, "headrace_rollout_group_seconds", "replica", "{{replica}} median"),
        quantile(0.95, "headrace_rollout_group_seconds", "replica", "{{replica}} 95 %"),
        unit="s",
    ),
    Panel(
        "Groups by how they ended",
        "settled: on to the rewards. handed back: another replica takes it. buried: given up.",
        rate("headrace_rollout_groups_total", "outcome", "{{outcome}}"),
        unit="ops",
    ),
)

_WEIGHTS = Row(
    "Weights",
    Panel(
        "Publication phases",
        "95 % of all were faster. `missed`: some replica did not make it by the deadline.",
        quantile(
            0.95,
            "headrace_orchestrator_publication_phase_seconds",
            "phase, outcome",
            "{{phase}} {{outcome}}",
            where=RUN,
        ),
        unit="s",
    ),
    Panel(
        "Publications by outcome",
        "Replicas that committed, or the phase that they missed.",
        rate("headrace_orchestrator_publication_outcomes_total", "outcome", "{{outcome}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Updates in the replicas",
        "Mean seconds of each phase as the replicas see it.",
        Query(
            "sum by (run, phase) (rate(headrace_rollout_update_seconds_sum"
            f"{{{REPLICA}}}[$__rate_interval]))"
            " / sum by (run, phase) (rate(headrace_rollout_update_seconds_count"
            f"{{{REPLICA}}}[$__rate_interval]))",
            "{{phase}}",
        ),
        unit="s",
    ),
    Panel(
        "Weights on their way",
        "Sent by the trainer and received by the replicas, by way.",
        rate("headrace_trainer_weights_sent_bytes_total", "route", "sent {{route}}", where=RUN),
        rate("headrace_rollout_weights_received_bytes_total", "route", "received {{route}}"),
        unit="Bps",
    ),
    Panel(
        "Canary",
        "Largest difference, nats, of the trainer's and the replica's logprobs on the canary prompt.",
        each("headrace_rollout_canary_gap_nats"),
        unit="none",
    ),
    Panel(
        "Joins that hang",
        "Threads of the trainer to which no receiver has connected. After three: the disk.",
        of_run("headrace_trainer_abandoned_join_threads", "{{run}} hang now"),
        increase("headrace_trainer_abandoned_joins_total", "replica", "{{replica}} left behind", where=RUN),
        unit="none",
        low=0,
        bad_above=1,
    ),
    Panel(
        "Quarantined and aborted",
        "Updates that failed their proof, or were given up.",
        increase(
            "headrace_rollout_updates_total",
            "replica, outcome",
            "{{replica}} {{outcome}}",
            where=f'{REPLICA}, outcome!="committed"',
        ),
        unit="none",
    ),
)

_ENGINE = Row(
    "SGLang",
    Panel(
        "Requests",
        "Running and queued in each server. Queued for long: fewer rows a replica, or more replicas.",
        each("sglang:num_running_reqs", "{{replica}} running"),
        each("sglang:num_queue_reqs", "{{replica}} queued"),
        stacked=True,
    ),
    Panel(
        "Cache of keys and values",
        "Used share. When it is full, requests are retracted and computed again.",
        each("sglang:token_usage"),
        unit="percentunit",
        low=0,
        high=1,
        bad_above=0.95,
    ),
    Panel("Throughput", "Tokens a second as the server measures them.", each("sglang:gen_throughput")),
    Panel(
        "Prefix cache hits",
        "The rollouts of a group share their prompt: a low rate computes it again for each.",
        each("sglang:cache_hit_rate"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Latency",
        "To the first token, and of whole requests.",
        quantile(0.95, "sglang:time_to_first_token_seconds", "replica", "{{replica}} first token 95 %"),
        quantile(0.95, "sglang:e2e_request_latency_seconds", "replica", "{{replica}} whole 95 %"),
        unit="s",
    ),
    Panel(
        "Server against service",
        "Generated tokens a second by the server's count and by ours: they differ while requests run.",
        rate("sglang:generation_tokens_total", "replica", "{{replica}} server"),
        Query(
            f'sum by (run, replica) (rate(headrace_rollout_tokens_total{{{REPLICA}, kind="generated"}}'
            "[$__rate_interval])) and on (run, replica) sglang:num_running_reqs",
            "{{replica}} service",
        ),
    ),
    Panel(
        "Retracted and paused",
        "Requests put back for want of memory, or for new weights.",
        each("sglang:num_retracted_reqs", "{{replica}} retracted"),
        each("sglang:num_paused_reqs", "{{replica}} paused"),
    ),
    Panel(
        "Looks that failed",
        "Scrapes in which a server did not report its metrics within 2 seconds.",
        increase(
            "headrace_rollout_engine_reads_total",
            "replica",
            "{{replica}}",
            where=f'{REPLICA}, outcome="failed"',
        ),
        unit="none",
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-fleet",
    title="Headrace: fleet",
    description="Rollout replicas, their engines, weights, GPUs, environments, and the rewards behind them.",
    variables=(
        RUN_VARIABLE,
        Variable(
            name="replica", label="Replica", query='label_values(headrace_rollout_policy_version{run=~"$run"}, replica)'
        ),
    ),
    rows=(_REPLICAS, _WORK, _WEIGHTS, _ENGINE, GPUS, ENVIRONMENTS, REWARDS),
)
