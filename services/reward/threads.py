"""Threads for work off the event loop: rules, models, files."""

from headrace.wire.process.threads import start_threads

_FEWEST = 32


def widen_threads(concurrency: int) -> None:
    """Gives the running loop enough of them: by default there are so few that one scorer waits for another's."""
    start_threads(_FEWEST + 4 * concurrency, "scorers")
