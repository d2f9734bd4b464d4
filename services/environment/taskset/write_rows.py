"""Writes the rows of a taskset to stdout as JSON lines: `... taskset.write_rows NAME --path FOLDER --limit N`.

They are for a `data.path` that is prepared where the package verifiers is not installed: in the trainer's image.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from headrace.services.environment.child.frames import Json
from headrace.services.environment.settings import VERIFIERS, EnvironmentTable
from headrace.services.environment.taskset.rows import taskset_rows
from headrace.wire.errors import ConfigError, HeadraceError
from headrace.wire.process.entry import exit_code


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code; what is refused is one line on stderr, and no row is written."""
    parser = argparse.ArgumentParser(prog="python -m headrace.services.environment.taskset.write_rows")
    parser.add_argument("name", help="an installed taskset, or a module in --path")
    parser.add_argument("--path", type=Path, help="environment.path")
    parser.add_argument("--options", default="{}", help="environment.options, as JSON")
    parser.add_argument("--limit", type=int, default=0, help="number of tasks; 0 = all")
    parser.add_argument("--network", action="store_true", help="environment.network")
    asked = parser.parse_args(arguments)
    try:
        rows = asyncio.run(taskset_rows(_table(asked), asked.limit))
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    sys.stdout.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return 0


def _table(asked: argparse.Namespace) -> EnvironmentTable:
    """The keys of `[environment]` that reading the rows needs. Raises ConfigError."""
    try:
        options: Json = json.loads(asked.options)
        return EnvironmentTable(
            name=f"{VERIFIERS}{asked.name}",
            path=asked.path and asked.path.resolve(),
            options=options,
            network=asked.network,
        )
    except (json.JSONDecodeError, ValidationError) as error:
        raise ConfigError(f"--options {asked.options}: not the fields of a taskset's config: {error}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
