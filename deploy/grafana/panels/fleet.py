"""Replicas, weights, streams, rewards, environments, processes and GPUs: is everything up, does anything pile up?"""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.grafana.queries import REPLICA, RUN, RUN_VARIABLE, each, increase, largest, of_run, quantile, rate, recorded

_GPU = "{{instance}} GPU {{gpu}}"
"""NVIDIA's exporter knows no run: its panels show all GPUs that Prometheus finds."""


def _gpu(expr: str) -> Query:
    return Query(f"max by (instance, gpu) ({expr})", _GPU)


_NOW = Row(
    "Now",
    Panel(
        "Targets",
        "Processes that Prometheus reads; a dead container is gone from here within seconds.",
        Query("sum by (service) (up)", "{{service}} up"),
        Query("count by (service) (up) - sum by (service) (up)", "{{service}} down"),
        unit="none",
        low=0,
    ),
    Panel(
        "Alerts that fire",
        "Each has a section in docs/runbook.md.",
        Query(
            'sum by (alertname) (ALERTS{alertstate="firing", alertname=~"Headrace.*"}) or vector(0)', "{{alertname}}"
        ),
        unit="none",
        low=0,
        bad_above=1,
    ),
    Panel(
        "Lives",
        "Incarnations of the trainer, and leases of replicas that ran out.",
        of_run("headrace_orchestrator_incarnation", "trainer"),
        of_run("headrace_orchestrator_replicas_lost_total", "replicas lost"),
        unit="none",
    ),
)

_REPLICAS = Row(
    "Replicas and weights",
    Panel(
        "Replicas by state",
        "As the orchestrator sees them: those with a live lease.",
        Query(f"sum by (run, state) (headrace_orchestrator_replicas{{{RUN}}})", "{{state}}"),
        stacked=True,
    ),
    Panel(
        "Policy version",
        "Of the weights that serve, beside the trainer's. 0: none yet.",
        each("headrace_rollout_policy_version"),
        of_run("headrace_trainer_policy_version", "trainer"),
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
    Panel(
        "Seconds a group",
        "From submission to the group's last token: the long tail holds batches up.",
        quantile(0.5, "headrace_rollout_group_seconds", "replica", "{{replica}} median"),
        quantile(0.95, "headrace_rollout_group_seconds", "replica", "{{replica}} 95 %"),
        unit="s",
    ),
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
        "Failed updates",
        "Weights that failed their proof, or were given up, by replica.",
        increase(
            "headrace_rollout_updates_total",
            "replica, outcome",
            "{{replica}} {{outcome}}",
            where=f'{REPLICA}, outcome!="committed"',
        ),
        unit="none",
    ),
    Panel(
        "SGLang's requests",
        "Running and queued in each server. Queued for long: fewer rows a replica, or more replicas.",
        each("sglang:num_running_reqs", "{{replica}} running"),
        each("sglang:num_queue_reqs", "{{replica}} queued"),
        stacked=True,
    ),
    Panel(
        "SGLang's cache",
        "Used share. When it is full, requests are retracted and computed again.",
        each("sglang:token_usage"),
        unit="percentunit",
        low=0,
        high=1,
        bad_above=0.95,
    ),
)

_STREAMS = Row(
    "Streams",
    Panel(
        "Not taken yet",
        "Prompts wait for replicas, rollouts for rewards, scored groups for the trainer.",
        largest("headrace_orchestrator_stream_lag_entries", "stream", "{{stream}}"),
        unit="none",
    ),
    Panel(
        "Oldest pending",
        "Time since the claim was last renewed. What was handed back looks a day old until it is taken.",
        largest("headrace_orchestrator_stream_oldest_pending_seconds", "stream", "{{stream}}"),
        unit="s",
        bad_above=300,
    ),
    Panel(
        "Delivered again",
        "A second. A consumer died or froze with these in hand, and another one has taken them.",
        rate("headrace_stream_redeliveries_total", "stream", "{{stream}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Dead letters",
        "Groups given up, by stream and reason; `headrace dead` lists and requeues them.",
        increase("headrace_dead_letters_total", "stream, reason", "{{stream}} {{reason}}", where=RUN),
        unit="none",
        bad_above=1,
    ),
)

_REWARDS = Row(
    "Rewards and environments",
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
        "Requests to endpoints",
        "To judges and reward models, each try for itself.",
        rate("headrace_reward_endpoint_requests_total", "endpoint, outcome", "{{endpoint}} {{outcome}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Episodes by end",
        "stop, length and turn_limit are scored; time, environment_error and tool_lost abstain.",
        rate("headrace_environment_episodes_total", "finish_reason", "{{finish_reason}}", where=RUN),
        unit="ops",
        stacked=True,
    ),
    Panel(
        "Seconds of turns",
        "95 % were faster: engine, wire (queueing included), environment.",
        quantile(0.95, "headrace_environment_turn_seconds", "part", "{{part}}", where=RUN),
        unit="s",
    ),
)

_ROOM = Row(
    "Processes and GPUs",
    Panel(
        "Free disk",
        "On the file system of the run directory, and what the checkpoints to come need of it.",
        Query(
            f"min by (run, replica) (headrace_trainer_run_dir_free_bytes{{{RUN}}}"
            f" or headrace_orchestrator_run_dir_free_bytes{{{RUN}}})",
            "free: {{replica}}",
        ),
        of_run("headrace_trainer_checkpoint_room_bytes", "needed"),
        unit="bytes",
        low=0,
    ),
    Panel(
        "Broker memory",
        "What its data takes, and its limit: `maxmemory`, or without one the memory of its machine.",
        of_run("headrace_orchestrator_broker_used_bytes", "used"),
        of_run("headrace_orchestrator_broker_limit_bytes", "limit"),
        unit="bytes",
        low=0,
    ),
    Panel(
        "Memory",
        "Resident, of each process.",
        each("process_resident_memory_bytes", where=RUN),
        unit="bytes",
    ),
    Panel(
        "Event loop lag",
        "How late timers were, at worst, in 30 seconds. Long: the loop is blocked, or no core is free.",
        each("headrace_event_loop_lag_seconds", where=RUN),
        unit="s",
        bad_above=2,
    ),
    Panel(
        "GPU utilization",
        "Share of the time in which any kernel ran.",
        _gpu("DCGM_FI_DEV_GPU_UTIL"),
        unit="percent",
        low=0,
        high=100,
    ),
    Panel(
        "GPU memory",
        "Used share of each GPU's memory, by all of its processes.",
        _gpu("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)"),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Last XID",
        "Number of the driver's last error; 0 = none. HeadraceGpuError reports new ones.",
        _gpu("DCGM_FI_DEV_XID_ERRORS"),
        unit="none",
        low=0,
        bad_above=1,
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-fleet",
    title="Headrace: fleet",
    description="Replicas, weights, streams, rewards, environments, processes and GPUs: is everything up?",
    variables=(
        RUN_VARIABLE,
        Variable(
            name="replica", label="Replica", query='label_values(headrace_rollout_policy_version{run=~"$run"}, replica)'
        ),
    ),
    rows=(_NOW, _REPLICAS, _STREAMS, _REWARDS, _ROOM),
)
