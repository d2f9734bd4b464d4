"""Tokens for the HTTP of runs and of pages: every route but those of probes and of the page's own files needs one."""

import secrets
from pathlib import Path
from urllib.parse import urlsplit

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import token_of
from headrace.wire.rundir.layout import RunPaths

_KNOWN: dict[str, str] = {}
"""Host and port -> the token of the page that a test serves there."""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def of_run(run_dir: Path, role: Role = Role.VIEWER) -> dict[str, str]:
    """The header with a role's token of a run on this machine."""
    return bearer(token_of(RunPaths(run_dir).tokens, role))


def made_for(folder: Path, url: str) -> Path:
    """A file in `folder` with a token for the page at `url`, which `bearer_of` finds."""
    file = folder / "page-token"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(32))
    remember(url, file.read_text())
    return file


def remember(url: str, token: str) -> None:
    """Pages below the URL's host and port are asked with this token."""
    _KNOWN[urlsplit(url).netloc] = token


def bearer_of(url: str) -> dict[str, str]:
    """The header for a page; none where no token is known."""
    token = _KNOWN.get(urlsplit(url).netloc)
    return bearer(token) if token else {}


def script(url: str) -> str:
    """Gives a browser the token of a page, unless it has another, before the page's own code runs."""
    host = urlsplit(url).netloc
    token = _KNOWN.get(host, "")
    return (
        f"if (location.host === '{host}' && '{token}' && !sessionStorage.getItem('headrace.token')) "
        f"sessionStorage.setItem('headrace.token', '{token}');"
    )


def any_role(_: str) -> frozenset[Role]:
    """For apps whose routes are asked without tokens: every caller has every role."""
    return frozenset(Role)
