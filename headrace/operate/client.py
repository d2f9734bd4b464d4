"""Client of the orchestrator's HTTP API for the command line: of a run on this machine, or behind a URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from headrace.supervisor.lock import in_preparation, supervisor_pid, the_live_run
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import read_token, token_of
from headrace.wire.api.error_reply import NO_ROUTE, wants_token, words_of
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.host.regular_file import read_object
from headrace.wire.peers.urls import is_internal
from headrace.wire.rundir.layout import RunPaths

TOKEN_FILE = "--token-file"
_TIMEOUT_S = 30.0
_REFUSED = {400, 404, 409, 413, 422}
_DENIED = {401, 403}


class AccessRefusedError(ConfigError):
    """The orchestrator answers, and does not accept the token."""


class StartingError(ConfigError):
    """A run is alive, and its orchestrator does not serve yet."""


@dataclass(frozen=True, slots=True)
class OrchestratorClient:
    """HTTP client of one orchestrator."""

    url: str
    """`http://host:port`, without a slash at its end."""
    token: str = ""
    """Token of the role that the requests need; empty = none is known."""

    def client(self, timeout_s: float = _TIMEOUT_S) -> httpx.Client:
        """Opens a client, which the caller closes. Requests carry the Origin that the orchestrator's guard requires."""
        headers = {"Origin": self.url, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        trust = not is_internal(urlsplit(self.url).hostname or "")
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=trust)

    def get(self, path: str, **parameters: str | int) -> Any:
        """Returns the JSON of a GET. Raises ConfigError if it is refused, TransientError if there is no answer."""
        return self._ask("GET", path, params=parameters)

    def post(self, path: str, body: Mapping[str, object], timeout_s: float = _TIMEOUT_S) -> Any:
        """Returns the JSON of a POST. Raises as `get` does."""
        return self._ask("POST", path, body=body, timeout_s=timeout_s)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, object] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> object:
        try:
            with self.client(timeout_s) as http:
                answer = http.request(method, path, params=params, json=body)
        except httpx.TimeoutException:
            raise TransientError(f"{self.url}{path} did not answer within {timeout_s:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise TransientError(f"no answer from {self.url}: {error}") from None
        return read_answer(self, path, answer)


def read_answer(client: OrchestratorClient, path: str, answer: httpx.Response) -> object:
    """Returns the JSON of a response that was read whole. Raises as `OrchestratorClient.get` does."""
    if answer.status_code == httpx.codes.OK:
        try:
            return answer.json()
        except ValueError:
            raise ConfigError(f"{client.url}{path} does not answer in JSON: is this a Headrace orchestrator?") from None
    words = words_of(answer.text) or answer.reason_phrase
    if answer.status_code in _DENIED:
        if wants_token(words):
            raise AccessRefusedError(
                f"{client.url} wants the token of a role that may do this: give its file with --token-file ({words})"
            )
        raise AccessRefusedError(f"{client.url} refuses: {words}")
    if answer.status_code == httpx.codes.NOT_FOUND and words.startswith(("Not Found", NO_ROUTE)):
        raise ConfigError(f"{client.url} has no {path}: is it the orchestrator of a run, and as new as this command?")
    if answer.status_code in _REFUSED:
        raise ConfigError(words)
    raise TransientError(f"{client.url}{path} answers {answer.status_code}: {words}")


def find_client(run_dir: Path | None, url: str = "", token_file: Path | None = None) -> OrchestratorClient:
    """Finds the orchestrator behind `url`, else of the live run in `run_dir`, else of the one live run in runs/.

    A run on this machine is asked with the operator's token of its directory, if that can be read: the token file may
    be that of another run, which a variable names, and is read only if it is needed. Raises ConfigError if there is
    no orchestrator, or the token cannot be read.
    """
    if url:
        if run_dir is not None:
            raise ConfigError("give either a run directory or --url")
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {url!r} is not like http://host:port")
        return OrchestratorClient(f"{parts.scheme}://{parts.netloc}", read_token(token_file or Path(), TOKEN_FILE))
    folder = run_dir or the_live_run()
    if not is_alive(folder):
        raise ConfigError(
            f"no run is alive in {folder} on this machine: continue one with `headrace train --resume`; for a run "
            "elsewhere, give the orchestrator's --url"
        )
    port = http_port(folder)
    token = token_of(RunPaths(folder).tokens, Role.OPERATOR) or read_token(token_file or Path(), TOKEN_FILE)
    return OrchestratorClient(f"http://127.0.0.1:{port}", token)


def is_alive(run_dir: Path) -> bool:
    """Whether a supervisor on this machine runs it. Raises ConfigError if the folder is not a run directory."""
    if not in_preparation(run_dir):
        check_run_dir(run_dir)
    return supervisor_pid(run_dir) is not None


def check_run_dir(run_dir: Path) -> None:
    """Raises ConfigError if the folder is not a run directory."""
    if not RunPaths(run_dir).run_toml.is_file():
        raise ConfigError(f"{run_dir} is not a run directory (it has no config/run.toml)")


def http_port(run_dir: Path) -> int:
    """The port of a live run's orchestrator. Raises StartingError while it is just starting."""
    found = read_object(RunPaths(run_dir).process("orchestrator"))
    pid, port = found.get("pid"), found.get("http_port")
    # A killed life leaves its file behind.
    if isinstance(pid, int) and isinstance(port, int) and port and Path("/proc", str(pid)).exists():
        return port
    doing = in_preparation(run_dir) or "just starting"
    raise StartingError(f"the run in {run_dir} is {doing}; try again in a moment")
