"""The access of this process: named at its start, read when it first serves or calls."""

from pathlib import Path

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import Access, make_tokens, read_access

_HEADER = "authorization"
_SCHEME = "Bearer "


class _Process:
    """Where the tokens of this process lie; nothing before `use`."""

    def __init__(self) -> None:
        self.role: Role | None = None
        self.folder = Path()
        self.makes = False
        self.read: Access | None = None


_PROCESS = _Process()


def use(role: Role, folder: Path, *, makes: bool) -> None:
    """From here on the process has a role, and its tokens are in `folder`; `makes`: it makes them if they are not."""
    _PROCESS.role, _PROCESS.folder, _PROCESS.makes, _PROCESS.read = role, folder, makes, None


def forget() -> None:
    """The process has no role."""
    _PROCESS.role, _PROCESS.read = None, None


def current() -> Access | None:
    """The process's access; None for a process without a role, such as a test. Raises ConfigError."""
    if _PROCESS.role is None:
        return None
    if _PROCESS.read is None:
        if _PROCESS.makes:
            make_tokens(_PROCESS.folder)
        _PROCESS.read = read_access(_PROCESS.folder, _PROCESS.role)
    return _PROCESS.read


def credentials() -> tuple[tuple[str, str], ...]:
    """The metadata of a call that this process makes."""
    access = current()
    return () if access is None else ((_HEADER, f"{_SCHEME}{access.token}"),)


def token_in(metadata: "tuple[tuple[str, str | bytes], ...] | None") -> str:
    """The token that a caller gives; empty if it gives none, or several."""
    given = [value for key, value in metadata or () if key == _HEADER]
    if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith(_SCHEME):
        return ""
    return given[0].removeprefix(_SCHEME)
