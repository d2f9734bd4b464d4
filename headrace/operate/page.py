"""Serves a page of a run in a process of its own until Ctrl-C: shared by `annotate` and `dashboard`."""

import contextlib
import html
import secrets
import subprocess
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.inspect.output import Output
from headrace.operate.client import StartingError, http_port, is_alive
from headrace.run.child import last_words
from headrace.supervisor.lock import in_preparation
from headrace.supervisor.once import ChildFailedError, Patience, child, child_environment
from headrace.supervisor.ports import check_free, pick_ports
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import TOKEN_BYTES, token_of
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.process.entry import REFUSED
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_READY_S = 60.0
_STOP_S = 15.0
_POLL_S = 0.1


def live_address(run_dir: Path) -> str | None:
    """Address of a live run's orchestrator, once it serves; None if the run is not live, or has no orchestrator.

    Raises ConfigError if it is not a run directory.
    """
    patience = Patience("the link of the run", lambda: in_preparation(run_dir) or "the run is starting")
    while is_alive(run_dir) and not _is_offline(run_dir):
        with contextlib.suppress(StartingError):
            return f"http://127.0.0.1:{http_port(run_dir)}"
        patience.look()
        time.sleep(_POLL_S)
    return None


def _is_offline(run_dir: Path) -> bool:
    """Whether the run is known to be of a stage without an orchestrator."""
    file = RunPaths(run_dir).run_toml
    return file.is_file() and (kept_tables(run_dir).get("run") or {}).get("stage", "rl") != "rl"


def link_of(page: str, token: str) -> str:
    """The address of a page with the token in its fragment, which a browser does not send.

    The page takes it out of its address bar, but the browser's history keeps the link as it was opened, and so does
    what a terminal's output is redirected to. It belongs in no log of ours, and in no command line.
    """
    return f"{page}#token={token}" if token else page


@dataclass(frozen=True, slots=True)
class PageAccess:
    """A page that is served, and where its token is."""

    url: str
    """Without the token."""
    token_file: Path
    """Its name is the role. It need not be there: the page asks for a token then."""

    @property
    def link(self) -> str:
        """For people."""
        return link_of(self.url, self._token)

    def show(self, output: Output, said: str) -> None:
        """Prints the link in place of the `{}` of `said`, and with `--json` the address and the token's file.

        Text that goes with JSON is likely to be kept: it has no token either. `token_file` is null if there is no token
        that this user can read.
        """
        if not output.json:
            output.say(said.format(self.link))
            return
        output.say(said.format(f"{self.url} (its token: {self.token_file})" if self._token else self.url))
        token_file = str(self.token_file.resolve()) if self._token else None
        output.in_json({"url": self.url, "token_file": token_file})

    @property
    def _token(self) -> str:
        return token_of(self.token_file.parent, Role(self.token_file.name))


def make_token_file(folder: Path, role: Role) -> Path:
    """Makes a token for one server in `folder`, in a file that its owner alone reads; its name is the role."""
    path = folder / role
    atomic.write_text(path, secrets.token_hex(TOKEN_BYTES), durable=False, mode=0o600)
    return path


def open_in_browser(link: str, folder: Path) -> None:
    """Opens a link by way of a file in `folder`, which stays until the browser has read it.

    Other users of the machine see the command line that starts a browser, but not that file.
    """
    path = folder / "open.html"
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(link)}">\n'
    atomic.write_text(path, page, durable=False, mode=0o600)
    webbrowser.open(path.resolve().as_uri())


def choose_port(port: int) -> int:
    """Returns the requested port, or a free one for 0. Raises ConfigError if it is taken."""
    if port:
        check_free([(port, "--port")])
    return port or pick_ports(1)[0]


def serve_page(
    argv: Sequence[str], port: int, log: Path, environment: Mapping[str, str], ready: Callable[[], None]
) -> None:
    """Runs the server until Ctrl-C; `ready` is called when it answers.

    Raises ConfigError if it refuses, ChildFailedError if it dies, WaitTimeoutError if it does not answer.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    env = child_environment(dict(environment), threads=1)
    with log.open("wb") as file, child(argv, env, stdout=file, stderr=file) as server:
        _wait_until_ready(server, port, log)
        # From here on Ctrl-C is the expected end, also while a browser opens, and a second one ends the wait.
        with contextlib.suppress(KeyboardInterrupt):
            ready()
            if server.wait():
                raise _failure(server, log)
        server.terminate()
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            server.wait(_STOP_S)


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _READY_S
    # trust_env: a proxy of the environment is not for loopback.
    with httpx.Client(trust_env=False, timeout=5.0) as http:
        while time.monotonic() < end:
            if server.poll() is not None:
                raise _failure(server, log)
            with contextlib.suppress(httpx.HTTPError):
                if http.get(f"http://127.0.0.1:{port}/readyz").status_code == httpx.codes.OK:
                    return
            time.sleep(_POLL_S)
    raise WaitTimeoutError("the page to be served", _READY_S)


def _failure(server: subprocess.Popen[bytes], log: Path) -> ConfigError | ChildFailedError:
    words = last_words(log.read_text(encoding="utf-8", errors="replace"))
    if server.returncode == REFUSED:
        return ConfigError(words)
    return ChildFailedError("the page", server.returncode, words)
