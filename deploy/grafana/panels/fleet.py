"""Rollout replicas, their engines, the weights that go to them, GPUs, and the rewards behind them."""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.grafana.panels.gpus import GPUS
from deploy.grafana.panels.rewards import REWARDS
from deploy.grafana.queries import REPLICA, RUN, each, increase, quantile, rate

_REPLICAS = Row(
    title="Replicas",
    panels=(
        Panel(
            title="Replicas by state",
            stacked=True,
            description="As the orchestrator sees them: those with a live lease.",
            queries=(
                Query(
                    expr=f"sum by (run, state) (headrace_orchestrator_replicas{{{RUN}}})",
                    legend="{{state}}",
                ),
            ),
        ),
        Panel(
            title="State of each",
            kind="state-timeline",
            width=16,
            description="One line a replica and state, filled while the replica is in it.",
            queries=(
                Query(
                    expr=f"max by (run, replica, state) (headrace_rollout_state{{{REPLICA}}} == 1)",
                    legend="{{replica}} {{state}}",
                ),
            ),
        ),
        Panel(
            title="Policy version",
            description="Of the weights that serve, beside the trainer's. 0: none yet.",
            queries=(
                each("headrace_rollout_policy_version"),
                Query(expr=f"max by (run) (headrace_trainer_policy_version{{{RUN}}})", legend="trainer"),
            ),
        ),
        Panel(
            title="Version spread",
            description="Versions that the slowest serving replica is behind the trainer; staleness allows so many.",
            queries=(
                Query(expr=f"run:headrace_policy_version:spread{{{RUN}}}", legend="behind"),
                Query(expr=f"max by (run) (headrace_orchestrator_max_staleness_versions{{{RUN}}})", legend="allowed"),
            ),
        ),
        Panel(
            title="Utilization",
            unit="percentunit",
            low=0,
            description="Groups in flight of those that replicas take at a time: what to scale on.",
            queries=(
                Query(
                    expr=f"headrace_rollout_groups_in_flight{{{REPLICA}}}"
                    f" / headrace_rollout_groups_capacity{{{REPLICA}}}",
                    legend="{{replica}}",
                ),
                Query(expr=f"run:headrace_rollout_utilization:ratio{{{RUN}}}", legend="all"),
            ),
        ),
    ),
)

_WORK = Row(
    title="Work",
    panels=(
        Panel(
            title="Generated tokens a second",
            stacked=True,
            description="Completion tokens of each replica.",
            queries=(
                rate("headrace_rollout_tokens_total", "replica", "{{replica}}", where=f'{REPLICA}, kind="generated"'),
            ),
        ),
        Panel(
            title="Tokens by kind",
            stacked=True,
            description="Prompts count once a group; recomputed ones are the price of new weights in mid-rollout.",
            queries=(rate("headrace_rollout_tokens_total", "kind", "{{kind}}"),),
        ),
        Panel(
            title="Rollouts in flight",
            stacked=True,
            description="Being decoded now.",
            queries=(each("headrace_rollout_rollouts_in_flight"),),
        ),
        Panel(
            title="Without a prompt",
            unit="percentunit",
            low=0,
            high=1,
            description="Share of the time of late.",
            queries=(each("headrace_rollout_waiting_ratio"),),
        ),
        Panel(
            title="Seconds a group",
            unit="s",
            description="From submission to the group's last token: the long tail holds batches up.",
            queries=(
                quantile(0.5, "headrace_rollout_group_seconds", "replica", "{{replica}} median"),
                quantile(0.95, "headrace_rollout_group_seconds", "replica", "{{replica}} 95 %"),
            ),
        ),
        Panel(
            title="Groups by how they ended",
            unit="ops",
            description="settled: on to the rewards. handed back: another replica takes it. buried: given up.",
            queries=(rate("headrace_rollout_groups_total", "outcome", "{{outcome}}"),),
        ),
    ),
)

_WEIGHTS = Row(
    title="Weights",
    panels=(
        Panel(
            title="Publication phases",
            unit="s",
            description="95 % of all were faster. `missed`: some replica did not make it by the deadline.",
            queries=(
                quantile(
                    0.95,
                    "headrace_orchestrator_publication_phase_seconds",
                    "phase, outcome",
                    "{{phase}} {{outcome}}",
                    where=RUN,
                ),
            ),
        ),
        Panel(
            title="Publications by outcome",
            unit="ops",
            description="Replicas that committed, or the phase that they missed.",
            queries=(rate("headrace_orchestrator_publication_outcomes_total", "outcome", "{{outcome}}", where=RUN),),
        ),
        Panel(
            title="Updates in the replicas",
            unit="s",
            description="Mean seconds of each phase as the replicas see it.",
            queries=(
                Query(
                    expr="sum by (run, phase) (rate(headrace_rollout_update_seconds_sum"
                    f"{{{REPLICA}}}[$__rate_interval]))"
                    " / sum by (run, phase) (rate(headrace_rollout_update_seconds_count"
                    f"{{{REPLICA}}}[$__rate_interval]))",
                    legend="{{phase}}",
                ),
            ),
        ),
        Panel(
            title="Weights on their way",
            unit="Bps",
            description="Sent by the trainer and received by the replicas, by way.",
            queries=(
                rate("headrace_trainer_weights_sent_bytes_total", "route", "sent {{route}}", where=RUN),
                rate("headrace_rollout_weights_received_bytes_total", "route", "received {{route}}"),
            ),
        ),
        Panel(
            title="Canary",
            unit="none",
            description="Largest difference, nats, of the trainer's and the replica's logprobs on the canary prompt.",
            queries=(each("headrace_rollout_canary_gap_nats"),),
        ),
        Panel(
            title="Joins that hang",
            unit="none",
            low=0,
            bad_above=1,
            description="Threads of the trainer to which no receiver has connected. After three: the disk.",
            queries=(
                Query(
                    expr=f"max by (run) (headrace_trainer_abandoned_join_threads{{{RUN}}})", legend="{{run}} hang now"
                ),
                increase("headrace_trainer_abandoned_joins_total", "replica", "{{replica}} left behind", where=RUN),
            ),
        ),
        Panel(
            title="Quarantined and aborted",
            unit="none",
            description="Updates that failed their proof, or were given up.",
            queries=(
                increase(
                    "headrace_rollout_updates_total",
                    "replica, outcome",
                    "{{replica}} {{outcome}}",
                    where=f'{REPLICA}, outcome!="committed"',
                ),
            ),
        ),
    ),
)

_ENGINE = Row(
    title="SGLang",
    panels=(
        Panel(
            title="Requests",
            stacked=True,
            description="Running and queued in each server. Queued for long: fewer rows a replica, or more replicas.",
            queries=(
                each("sglang:num_running_reqs", "{{replica}} running"),
                each("sglang:num_queue_reqs", "{{replica}} queued"),
            ),
        ),
        Panel(
            title="Cache of keys and values",
            unit="percentunit",
            low=0,
            high=1,
            bad_above=0.95,
            description="Used share. When it is full, requests are retracted and computed again.",
            queries=(each("sglang:token_usage"),),
        ),
        Panel(
            title="Throughput",
            description="Tokens a second as the server measures them.",
            queries=(each("sglang:gen_throughput"),),
        ),
        Panel(
            title="Prefix cache hits",
            unit="percentunit",
            low=0,
            high=1,
            description="The rollouts of a group share their prompt: a low rate computes it again for each.",
            queries=(each("sglang:cache_hit_rate"),),
        ),
        Panel(
            title="Latency",
            unit="s",
            description="To the first token, and of whole requests.",
            queries=(
                quantile(0.95, "sglang:time_to_first_token_seconds", "replica", "{{replica}} first token 95 %"),
                quantile(0.95, "sglang:e2e_request_latency_seconds", "replica", "{{replica}} whole 95 %"),
            ),
        ),
        Panel(
            title="Server against service",
            description="Generated tokens a second by the server's count and by ours: they differ while requests run.",
            queries=(
                rate("sglang:generation_tokens_total", "replica", "{{replica}} server"),
                Query(
                    expr=f'sum by (run, replica) (rate(headrace_rollout_tokens_total{{{REPLICA}, kind="generated"}}'
                    "[$__rate_interval])) and on (run, replica) sglang:num_running_reqs",
                    legend="{{replica}} service",
                ),
            ),
        ),
        Panel(
            title="Retracted and paused",
            description="Requests put back for want of memory, or for new weights.",
            queries=(
                each("sglang:num_retracted_reqs", "{{replica}} retracted"),
                each("sglang:num_paused_reqs", "{{replica}} paused"),
            ),
        ),
        Panel(
            title="Looks that failed",
            unit="none",
            description="Scrapes in which a server did not tell its metrics within 2 seconds.",
            queries=(
                increase(
                    "headrace_rollout_engine_reads_total",
                    "replica",
                    "{{replica}}",
                    where=f'{REPLICA}, outcome="failed"',
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-fleet",
    title="Headrace: fleet",
    description="Rollout replicas, their engines, the weights that go to them, GPUs, and the rewards behind them.",
    variables=(
        Variable(name="run", label="Run", query="label_values(headrace_build_info, run)"),
        Variable(
            name="replica", label="Replica", query='label_values(headrace_rollout_policy_version{run=~"$run"}, replica)'
        ),
    ),
    rows=(_REPLICAS, _WORK, _WEIGHTS, _ENGINE, GPUS, REWARDS),
)
