"""Processes, streams and alerts: is everything up, and does anything pile up?"""

from deploy.grafana.dashboard import Dashboard, Panel, Query, Row, Variable
from deploy.grafana.queries import REPLICA, RUN, RUN_VARIABLE, each, increase, of_run, rate

_PROCESS = f'service=~"$service", {REPLICA}'


def _each(metric: str) -> Query:
    return each(metric, where=_PROCESS)


def _stream(metric: str) -> Query:
    return Query(f"max by (run, stream) ({metric}{{{RUN}}})", "{{stream}}")


_HEAD = Row(
    "Now",
    Panel(
        "Targets",
        "Processes that Prometheus reads; a dead container is gone from here within seconds.",
        Query('sum by (service) (up{service=~"$service"})', "{{service}} up"),
        Query(
            'count by (service) (up{service=~"$service"}) - sum by (service) (up{service=~"$service"})',
            "{{service}} down",
        ),
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
        "Builds",
        "What each process runs: unequal versions in one run are asking for trouble.",
        Query(
            f"max by (service, run, replica, version, python, instance) (headrace_build_info{{{_PROCESS}}})",
            "{{replica}}",
        ),
        kind="table",
    ),
)

_STREAMS = Row(
    "Streams",
    Panel(
        "Not taken yet",
        "Prompts wait for replicas, rollouts for rewards, scored groups for the trainer.",
        _stream("headrace_orchestrator_stream_lag_entries"),
        unit="none",
    ),
    Panel(
        "Taken and not acked",
        "Work in hand. Never more than what consumers may hold.",
        _stream("headrace_orchestrator_stream_pending_entries"),
        unit="none",
    ),
    Panel(
        "Oldest pending",
        "Time since the claim was last renewed. What was handed back looks a day old until it is taken.",
        _stream("headrace_orchestrator_stream_oldest_pending_seconds"),
        unit="s",
        bad_above=300,
    ),
    Panel(
        "Entries",
        "What the broker keeps; acked entries are trimmed every few seconds, dead letters never.",
        _stream("headrace_orchestrator_stream_entries"),
        unit="none",
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

_ROOM = Row(
    "Room",
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
        "Used disk",
        "Share of the file system of the run directory, whatever has filled it.",
        Query(
            f"1 - headrace_trainer_run_dir_free_bytes{{{RUN}}} / headrace_trainer_run_dir_size_bytes{{{RUN}}}",
            "{{replica}}",
        ),
        Query(
            f"1 - headrace_orchestrator_run_dir_free_bytes{{{RUN}}}"
            f" / headrace_orchestrator_run_dir_size_bytes{{{RUN}}}",
            "{{replica}}",
        ),
        unit="percentunit",
        low=0,
        high=1,
    ),
    Panel(
        "Broker memory",
        "What its data takes, and its limit: `maxmemory`, or without one the memory of its machine.",
        of_run("headrace_orchestrator_broker_used_bytes", "used"),
        of_run("headrace_orchestrator_broker_limit_bytes", "limit"),
        unit="bytes",
        low=0,
    ),
)

_PROCESSES = Row(
    "Processes",
    Panel(
        "Event loop lag",
        "How late timers were, at worst, in 30 seconds. Long: the loop is blocked, or no core is free.",
        _each("headrace_event_loop_lag_seconds"),
        unit="s",
        bad_above=2,
    ),
    Panel(
        "CPU",
        "Cores of each process, without its children (engines and sandboxes).",
        rate("process_cpu_seconds_total", "replica", "{{replica}}", where=_PROCESS),
        unit="none",
    ),
    Panel("Memory", "Resident, of each process.", _each("process_resident_memory_bytes"), unit="bytes"),
    Panel(
        "Open files",
        "Share of what the process may have open.",
        Query(f"max by (run, replica) (process_open_fds{{{_PROCESS}}} / process_max_fds{{{_PROCESS}}})", "{{replica}}"),
        unit="percentunit",
        low=0,
        high=1,
        bad_above=0.8,
    ),
    Panel(
        "Age",
        "Since the process began: a saw tooth is one that dies again and again.",
        Query(f"time() - max by (run, replica) (process_start_time_seconds{{{_PROCESS}}})", "{{replica}}"),
        unit="s",
    ),
    Panel(
        "Lives",
        "Incarnations of the trainer, and leases of replicas that ran out.",
        of_run("headrace_orchestrator_incarnation", "trainer"),
        of_run("headrace_orchestrator_replicas_lost_total", "replicas lost"),
        unit="none",
    ),
    Panel(
        "Checkpoints",
        "Mean seconds to write one, and its age.",
        Query(
            f"sum by (run) (headrace_trainer_checkpoint_seconds_sum{{{RUN}}})"
            f" / sum by (run) (headrace_trainer_checkpoint_seconds_count{{{RUN}}})",
            "to write",
        ),
        Query(
            f"time() - max by (run) (headrace_trainer_checkpoint_last_success_timestamp_seconds{{{RUN}}} > 0)", "age"
        ),
        unit="s",
    ),
    Panel(
        "Evaluation and checkpoint",
        "1 while it is under way. Steps wait for both, and HeadraceNoStep does, up to their deadlines.",
        Query(
            f"max by (run, operation) (headrace_orchestrator_operation_active{{{RUN}}}"
            f" or headrace_trainer_operation_active{{{RUN}}})",
            "{{operation}}",
        ),
        unit="none",
        low=0,
        high=1,
    ),
    Panel(
        "Scrapes",
        "How long Prometheus waits for a process's metrics.",
        Query('max by (service, instance) (scrape_duration_seconds{service=~"$service"})', "{{service}} {{instance}}"),
        unit="s",
    ),
    Panel(
        "Garbage collection",
        "Collections of Python's oldest generation a second.",
        rate("python_gc_collections_total", "replica", "{{replica}}", where=f'{_PROCESS}, generation="2"'),
        unit="ops",
    ),
)

DASHBOARD = Dashboard(
    uid="headrace-infrastructure",
    title="Headrace: infrastructure",
    description="Processes, streams and alerts: is everything up, and does anything pile up?",
    variables=(
        RUN_VARIABLE,
        Variable(name="service", label="Service", query="label_values(up, service)"),
        Variable(name="replica", label="Process", query='label_values(headrace_build_info{run=~"$run"}, replica)'),
    ),
    rows=(_HEAD, _STREAMS, _ROOM, _PROCESSES),
)
