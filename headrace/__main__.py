"""`headrace` and `python -m headrace`."""

import sys

from headrace.cli.app import run


def main() -> None:
    """Ends the process with the exit status of the command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
