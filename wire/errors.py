"""The project's errors: the class names the party at fault.

`ValueError` (here `ConfigError`, `DataError`) is the user's input, `ContractError` a peer's message, `TransientError`
something that a later try may cure, `FencedError` the end of a zombie. `assert` is for our own bugs only.
"""


class HeadraceError(Exception):
    """Root of all errors of this project."""

    final = False
    """A restarted process would fail in the same way: the supervisor must not restart it."""


class ConfigError(HeadraceError, ValueError):
    """A setting is wrong. The message names file, key and the way out."""


class DataError(HeadraceError, ValueError):
    """A row of the user's data is wrong. The message names file, line and column."""


class ContractError(HeadraceError, ValueError):
    """A peer sent what the contract forbids; no retry will cure it.

    `code` comes from a closed set of short words (`bad_checksum`, `length_mismatch`): it is used as a metric label.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @property
    def is_damage(self) -> bool:
        """Whether the bytes were altered in transit: another copy of the message may be whole."""
        return self.code == "bad_checksum"

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.code, self.message)


class TransientError(HeadraceError, ConnectionError):
    """A peer or the broker did not answer; the owner of the operation may retry it."""


class ExhaustedError(TransientError):
    """A peer has no room for one request more; another one, or a later try, may be taken."""


class WaitTimeoutError(HeadraceError, TimeoutError):
    """A named wait passed its deadline."""

    final = True

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"waited {seconds:.1f} s for {what}")
        self.what = what
        self.seconds = seconds

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        return type(self), (self.what, self.seconds)


class FencedError(HeadraceError):
    """A newer incarnation exists: this process must stop and change nothing more."""


class DiskError(HeadraceError, OSError):
    """A file system takes no more writes, or fails. The message names the path, the bytes free, and the way out."""

    final = True
