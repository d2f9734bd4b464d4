"""How a job may end without a result."""

from headrace.wire.errors import HeadraceError
from headrace.wire.process.users_code import Bug, shown


class WorkerError(HeadraceError):
    """A job has no result."""


class JobTimeoutError(WorkerError, TimeoutError):
    """It passed its deadline; its process was killed.

    `cpu_s`: processor time that it used in vain; None where the system does not report it.
    """

    def __init__(self, message: str, cpu_s: float | None = None) -> None:
        super().__init__(message)
        self.cpu_s = cpu_s


class JobDiedError(WorkerError):
    """Its process died of it: out of memory, a crash in native code, an exit."""


class JobStarvedError(WorkerError):
    """It got less processor time than its deadline allows, in many times that: the machine is too busy."""


class JobError(WorkerError):
    """The function raised, or returned what is no JSON object. `kind` is the exception's class.

    `bug`: file, line and traceback, where it is an error of the function's own code.
    """

    def __init__(self, kind: str, message: str, bug: Bug | None = None) -> None:
        at = f" ({bug.place})" if bug else ""
        super().__init__((f"{kind}: {shown(message)}" if message else kind) + at)
        self.kind = kind
        self.message = message
        self.bug = bug

    def __reduce__(self) -> tuple[type, tuple[str, str, Bug | None]]:
        return type(self), (self.kind, self.message, self.bug)
