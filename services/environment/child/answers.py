"""How a call of the user's code in a child is answered, and the CPU that it may use."""

import resource
from collections.abc import Awaitable, Callable

from headrace.services.environment.child.errors import ResultError, ToolLostError
from headrace.services.environment.child.frames import Json
from headrace.services.environment.child.loading import place_of
from headrace.wire.host.frames import encode


async def answer_of(call: Callable[[], Awaitable[object]]) -> Json:
    """The answer to a call; an error of the user's code has its place."""
    try:
        found: Json = {"ok": await call()}
        encode(found, finite=True)  # What JSON cannot hold is the environment's error too.
    except ToolLostError as error:
        return {"lost": f"{type(error).__name__}: {error}", "where": place_of(error)}
    except ResultError as error:
        return {"error": str(error), "where": ""}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "where": place_of(error)}
    return found


def allow_cpu(seconds: float) -> None:
    """From here on so many seconds of a CPU, 0 = any; beyond them the kernel ends the process (SIGXCPU)."""
    if seconds:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, hard))
