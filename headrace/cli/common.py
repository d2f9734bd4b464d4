"""What all verbs of the command line share: two options, and how they end when something is wrong."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headrace.inspect.output import BAD_INPUT, DISK_REFUSED, FAILED, STOPPED, Output
from headrace.wire.errors import ConfigError, DataError, DiskError, HeadraceError
from headrace.wire.host.disk_fault import disk_fault, free_bytes

RunDir = Annotated[Path | None, typer.Option("--run-dir", help="The run directory.")]
AcceptChangedCode = Annotated[
    bool, typer.Option("--accept-changed-code", help="Resume with an algorithm.path that has changed.")
]
Json = Annotated[bool, typer.Option("--json", help="The last line of stdout is one JSON object.")]
Where = Annotated[
    Path | None, typer.Argument(metavar="RUN_DIR", help="Default: the one live run in runs/.", show_default=False)
]
Url = Annotated[str, typer.Option("--url", help="The orchestrator of a run elsewhere: http://host:port.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token of an operator.", envvar="HEADRACE_OPERATOR_TOKEN_FILE"),
]


@contextlib.contextmanager
def reported_errors(
    *, json: bool, stopped: str = "stopped before anything was started", place: Path | None = None
) -> Iterator[Output]:
    """Yields the verb's output; turns what goes wrong into one message and an exit status.

    `place`: where it writes, for an error of a disk that names no file.
    """
    output = Output.choose(json=json)
    try:
        yield output
    except HeadraceError as error:
        output.complain(str(error))
        refused = DISK_REFUSED if isinstance(error, DiskError) else FAILED
        raise typer.Exit(BAD_INPUT if isinstance(error, ConfigError | DataError) else refused) from None
    except OSError as error:
        # Of an error without a path: the fullest of the disks that a command writes to.
        places = (place or Path(), Path(tempfile.gettempdir()))
        fault = disk_fault(error, min(places, key=lambda one: free_bytes(one) or 0))
        if fault is None:
            raise
        output.complain(str(fault))
        raise typer.Exit(DISK_REFUSED) from None
    except KeyboardInterrupt:
        output.complain(stopped)
        raise typer.Exit(STOPPED) from None


def json_line(value: object) -> str:
    """One line of JSON, for scripts."""
    return json.dumps(value)
