"""Whether each SERVICE.POINT has been struck, in a campaign or elsewhere. Pure."""

from collections.abc import Collection

from tests.chaos.failpoints.expected import ELSEWHERE, NEVER, NOT_STRUCK
from tests.chaos.failpoints.reachable import of_services


def gaps(done: Collection[str], reachable: Collection[str] | None = None) -> list[str]:
    """What is wrong with the SERVICE.POINTs that a campaign has struck, one sentence each; none = all have an account.

    `reachable`: those that the source leads to; None = of this tree.
    """
    every, struck = set(of_services() if reachable is None else reachable), set(done)
    missed = every - struck - ELSEWHERE.keys() - NEVER.keys() - NOT_STRUCK.keys()
    denied = struck & (NEVER.keys() | NOT_STRUCK.keys())
    return [
        *(f"no process was killed at {one}: `expected.py` has neither a test nor a reason" for one in sorted(missed)),
        *(f"a process was killed at {one}, of which `expected.py` says that none is" for one in sorted(denied)),
        *(f"a process was killed at {one}, which `reachable.py` does not find" for one in sorted(struck - every)),
    ]
