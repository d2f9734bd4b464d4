"""`headrace` and `python -m headrace`."""

import sys

from headrace.cli.importing import importing
from headrace.wire.process.environment import keep_out


def main() -> None:
    """Ends the process with the exit status of the command."""
    with importing():
        if left_out := keep_out():
            sys.stderr.write(
                f"note: left out, as it would lead connections of a run elsewhere: {', '.join(left_out)}\n"
            )
        from headrace.cli.app import run
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
