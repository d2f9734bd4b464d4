"""Processes, streams and alerts: is everything up, and does anything pile up?"""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.grafana.queries import REPLICA, RUN, each, increase, rate

_PROCESS = f'service=~"$service", {REPLICA}'


def _each(metric: str) -> Query:
    return each(metric, where=_PROCESS)


def _stream(metric: str) -> Query:
    return Query(expr=f"max by (run, stream) ({metric}{{{RUN}}})", legend="{{stream}}")


_HEAD = Row(
    title="Now",
    panels=(
        Panel(
            title="Targets",
            unit="none",
            low=0,
            description="Processes that Prometheus reads; a dead container is gone from here within seconds.",
            queries=(
                Query(expr='sum by (service) (up{service=~"$service"})', legend="{{service}} up"),
                Query(
                    expr='count by (service) (up{service=~"$service"}) - sum by (service) (up{service=~"$service"})',
                    legend="{{service}} down",
                ),
            ),
        ),
        Panel(
            title="Alerts that fire",
            unit="none",
            low=0,
            bad_above=1,
            description="Each has a section in docs/runbook.md.",
            queries=(
                Query(
                    expr='sum by (alertname) (ALERTS{alertstate="firing", alertname=~"Headrace.*"}) or vector(0)',
                    legend="{{alertname}}",
                ),
            ),
        ),
        Panel(
            title="Builds",
            kind="table",
            description="What each process runs: unequal versions in one run are asking for trouble.",
            queries=(
                Query(
                    expr="max by (service, run, replica, version, python, instance) (headrace_build_info"
                    f"{{{_PROCESS}}})",
                    legend="{{replica}}",
                ),
            ),
        ),
    ),
)

_STREAMS = Row(
    title="Streams",
    panels=(
        Panel(
            title="Not taken yet",
            unit="none",
            description="Prompts wait for replicas, rollouts for rewards, scored groups for the trainer.",
            queries=(_stream("headrace_orchestrator_stream_lag_entries"),),
        ),
        Panel(
            title="Taken and not acked",
            unit="none",
            description="Work in hand. Never more than what consumers may hold.",
            queries=(_stream("headrace_orchestrator_stream_pending_entries"),),
        ),
        Panel(
            title="Oldest pending",
            unit="s",
            bad_above=300,
            description="Since nobody renewed the claim. What was handed back looks a day old until it is taken.",
            queries=(_stream("headrace_orchestrator_stream_oldest_pending_seconds"),),
        ),
        Panel(
            title="Entries",
            unit="none",
            description="What the broker keeps; acked entries are trimmed every few seconds, dead letters never.",
            queries=(_stream("headrace_orchestrator_stream_entries"),),
        ),
        Panel(
            title="Delivered again",
            unit="ops",
            description="A second. A consumer died or froze with these in hand, and another one has taken them.",
            queries=(rate("headrace_stream_redeliveries_total", "stream", "{{stream}}", where=RUN),),
        ),
        Panel(
            title="Dead letters",
            unit="none",
            bad_above=1,
            description="Groups given up, by stream and reason; `headrace dead` lists and requeues them.",
            queries=(increase("headrace_dead_letters_total", "stream, reason", "{{stream}} {{reason}}", where=RUN),),
        ),
    ),
)

_ROOM = Row(
    title="Room",
    panels=(
        Panel(
            title="Free disk",
            unit="bytes",
            low=0,
            description="On the file system of the run directory, and what the checkpoints to come need of it.",
            queries=(
                Query(
                    expr=f"min by (run, replica) (headrace_trainer_run_dir_free_bytes{{{RUN}}}"
                    f" or headrace_orchestrator_run_dir_free_bytes{{{RUN}}})",
                    legend="free: {{replica}}",
                ),
                Query(expr=f"max by (run) (headrace_trainer_checkpoint_room_bytes{{{RUN}}})", legend="needed"),
            ),
        ),
        Panel(
            title="Used disk",
            unit="percentunit",
            low=0,
            high=1,
            description="Share of the file system of the run directory, whoever has filled it.",
            queries=(
                Query(
                    expr=f"1 - headrace_trainer_run_dir_free_bytes{{{RUN}}}"
                    f" / headrace_trainer_run_dir_size_bytes{{{RUN}}}",
                    legend="{{replica}}",
                ),
                Query(
                    expr=f"1 - headrace_orchestrator_run_dir_free_bytes{{{RUN}}}"
                    f" / headrace_orchestrator_run_dir_size_bytes{{{RUN}}}",
                    legend="{{replica}}",
                ),
            ),
        ),
        Panel(
            title="Broker memory",
            unit="bytes",
            low=0,
            description="What its data takes, and its limit: `maxmemory`, or without one the memory of its machine.",
            queries=(
                Query(expr=f"max by (run) (headrace_orchestrator_broker_used_bytes{{{RUN}}})", legend="used"),
                Query(expr=f"max by (run) (headrace_orchestrator_broker_limit_bytes{{{RUN}}})", legend="limit"),
            ),
        ),
    ),
)

_PROCESSES = Row(
    title="Processes",
    panels=(
        Panel(
            title="Event loop lag",
            unit="s",
            bad_above=2,
            description="How late timers were, at worst, in 30 seconds. Long: the loop is blocked, or no core is free.",
            queries=(_each("headrace_event_loop_lag_seconds"),),
        ),
        Panel(
            title="CPU",
            unit="none",
            description="Cores of each process, without its children (engines and sandboxes).",
            queries=(rate("process_cpu_seconds_total", "replica", "{{replica}}", where=_PROCESS),),
        ),
        Panel(
            title="Memory",
            unit="bytes",
            description="Resident, of each process.",
            queries=(_each("process_resident_memory_bytes"),),
        ),
        Panel(
            title="Open files",
            unit="percentunit",
            low=0,
            high=1,
            bad_above=0.8,
            description="Share of what the process may have open.",
            queries=(
                Query(
                    expr=f"max by (run, replica) (process_open_fds{{{_PROCESS}}} / process_max_fds{{{_PROCESS}}})",
                    legend="{{replica}}",
                ),
            ),
        ),
        Panel(
            title="Age",
            unit="s",
            description="Since the process began: a saw tooth is one that dies again and again.",
            queries=(
                Query(
                    expr=f"time() - max by (run, replica) (process_start_time_seconds{{{_PROCESS}}})",
                    legend="{{replica}}",
                ),
            ),
        ),
        Panel(
            title="Lives",
            unit="none",
            description="Incarnations of the trainer, and leases of replicas that ran out.",
            queries=(
                Query(expr=f"max by (run) (headrace_orchestrator_incarnation{{{RUN}}})", legend="trainer"),
                Query(
                    expr=f"max by (run) (headrace_orchestrator_replicas_lost_total{{{RUN}}})", legend="replicas lost"
                ),
            ),
        ),
        Panel(
            title="Checkpoints",
            unit="s",
            description="Mean seconds to write one, and its age.",
            queries=(
                Query(
                    expr=f"sum by (run) (headrace_trainer_checkpoint_seconds_sum{{{RUN}}})"
                    f" / sum by (run) (headrace_trainer_checkpoint_seconds_count{{{RUN}}})",
                    legend="to write",
                ),
                Query(
                    expr="time() - max by (run) (headrace_trainer_checkpoint_last_success_timestamp_seconds"
                    f"{{{RUN}}} > 0)",
                    legend="age",
                ),
            ),
        ),
        Panel(
            title="Evaluation and checkpoint",
            unit="none",
            low=0,
            high=1,
            description="1 while it is under way. Steps wait for both, and HeadraceNoStep does, up to their deadlines.",
            queries=(
                Query(
                    expr=f"max by (run, operation) (headrace_orchestrator_operation_active{{{RUN}}}"
                    f" or headrace_trainer_operation_active{{{RUN}}})",
                    legend="{{operation}}",
                ),
            ),
        ),
        Panel(
            title="Scrapes",
            unit="s",
            description="How long Prometheus waits for a process's metrics.",
            queries=(
                Query(
                    expr='max by (service, instance) (scrape_duration_seconds{service=~"$service"})',
                    legend="{{service}} {{instance}}",
                ),
            ),
        ),
        Panel(
            title="Garbage collection",
            unit="ops",
            description="Collections of Python's oldest generation a second.",
            queries=(
                rate("python_gc_collections_total", "replica", "{{replica}}", where=f'{_PROCESS}, generation="2"'),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-infrastructure",
    title="Headrace: infrastructure",
    description="Processes, streams and alerts: is everything up, and does anything pile up?",
    variables=(
        Variable(name="run", label="Run", query="label_values(headrace_build_info, run)"),
        Variable(name="service", label="Service", query="label_values(up, service)"),
        Variable(name="replica", label="Process", query='label_values(headrace_build_info{run=~"$run"}, replica)'),
    ),
    rows=(_HEAD, _STREAMS, _ROOM, _PROCESSES),
)
