"""`headrace scale`: requests another number of replicas from the supervisor of a live run."""

import asyncio
from pathlib import Path

from headrace.supervisor.lock import supervisor, the_live_run
from headrace.supervisor.scaling import SERVICES, check_count
from headrace.wire.errors import ConfigError
from headrace.wire.peers.control import ask

_ANSWER_S = 15.0


def scale(service: str, count: str, run_dir: Path | None) -> list[str]:
    """Returns the supervisor's report of what it did. Raises ConfigError for a bad request, or if no run is live."""
    number = check_request(service, count)
    folder = run_dir or the_live_run()
    record = supervisor(folder)
    if not record:
        raise ConfigError(
            f"no run is alive in {folder}: start one with `headrace train`, or continue one with --resume"
        )
    if "control" not in record:
        raise ConfigError(f"the run in {folder} is just starting; try again in a moment")
    request = {"verb": "scale", "service": service, "count": number}
    return asyncio.run(ask(Path(str(record["control"])), request, _ANSWER_S))


def check_request(service: str, count: str) -> int:
    """Returns the count as a number. Raises ConfigError for a service without replicas, or what is not their number."""
    if service not in SERVICES:
        raise ConfigError(f"{service!r} cannot be scaled: only {' and '.join(SERVICES)} have replicas")
    return check_count(count)
