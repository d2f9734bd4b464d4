"""What a command records of a run's files: their receipt at the end, and the config with which a run is resumed."""

import time
from collections.abc import Callable
from pathlib import Path

from headrace.wire.errors import HeadraceError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.receipts import take_receipt


def end_receipt(run_dir: Path, say: Callable[[str], None], *, step: int) -> str | None:
    """Takes and says the receipt of a run whose processes have all ended; None, with the reason said, without one."""
    try:
        taken = take_receipt(run_dir, step=step)
    except (OSError, HeadraceError) as error:
        say(f"no receipt was taken: {error}")
        return None
    if taken is None:
        return None  # A start that failed before any process wrote.
    say(f"receipt of step {step}: {taken.value}")
    return taken.value


def record_config(run_dir: Path, staged: Path) -> None:
    """Records that the files in `staged`, laid out like the run directory, are about to become the run's config.

    Before they do: a command that is killed in between leaves a config that some record explains. Raises OSError.
    """
    events = EventLog(run_dir, "launch", time.time_ns())
    events.append("config_written", config=config_digests(run_dir, staged))
    events.close()
