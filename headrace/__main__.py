"""`headrace` and `python -m headrace`."""

import sys


def main() -> None:
    """Ends the process with the exit status of the command."""
    try:
        from headrace.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "headrace").partition(".")[0] == "headrace":
            raise
        sys.stderr.write(
            f"error: the command line needs {error.name}: pip install 'headrace[cli]'; "
            "of the images, those of orchestrator and trainer have it\n"
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
