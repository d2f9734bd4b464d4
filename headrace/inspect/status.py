"""Current status of a run: from the orchestrator of a live one, from the files of an ended one."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console

from headrace.inspect.runs.facts import run_state
from headrace.inspect.screen import draw, eval_line
from headrace.inspect.tables import show_table
from headrace.inspect.waits import Party, parties
from headrace.operate.client import (
    TOKEN_FILE,
    AccessRefusedError,
    OrchestratorClient,
    StartingError,
    check_run_dir,
    find_client,
    http_port,
)
from headrace.supervisor.lock import in_preparation, supervisor_pid, the_live_run
from headrace.supervisor.view import View
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import read_token, token_of
from headrace.wire.api.model import read_answer_of
from headrace.wire.api.status import RunStatus
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.host.regular_file import read_object
from headrace.wire.peers.outage import unreachable
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import last_steps
from headrace.wire.rundir.receipts import Receipt, last_receipt

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVALS = 8
"""So many evaluations are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLook:
    """What is known of a run: from its directory, or from an orchestrator elsewhere."""

    run_dir: str = ""
    """Empty for an orchestrator behind a URL."""
    url: str = ""
    supervisor: int | None = None
    """Process id; None if none runs here."""
    preparing: str = ""
    """What its start does before there is a config, in words."""
    services: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Service -> its pid file, while the supervisor runs."""
    orchestrator: RunStatus | None
    """Its status; None if it does not answer."""
    steps: int
    metrics: Record
    """Numbers of the last step."""
    evals: Sequence[Record]
    receipt: Receipt | None = None
    """The newest of the run directory; None behind a URL."""
    refused: str = ""
    """Why the orchestrator's status is missing, if it answers but accepts no token that was found; for people."""

    @property
    def waits(self) -> list[Party]:
        """Which party waits for what; empty without an orchestrator."""
        return parties(self.orchestrator, self.processes) if self.orchestrator else []

    @property
    def processes(self) -> dict[str, str]:
        """Service -> its process, in words."""
        return {name: f"pid {one['pid']}" for name, one in self.services.items()}

    def as_json(self) -> dict[str, object]:
        """The object that `headrace status --json` prints; times are unix seconds."""
        here = {"url": self.url} if self.url else {"run_dir": self.run_dir, "supervisor": self.supervisor}
        status = self.orchestrator
        return here | {
            "services": self.services,
            "orchestrator": status.model_dump(exclude_unset=True) if status else None,
            "steps": self.steps,
            "metrics": self.metrics,
            "eval": self.evals,
            "receipt": {"value": self.receipt.value, "step": self.receipt.line.step} if self.receipt else None,
            "waits": [asdict(party) for party in self.waits],
        }


def look(run_dir: Path, token_file: Path | None = None) -> RunLook:
    """Looks at a run directory, and asks the orchestrator if a supervisor runs here.

    `token_file`: of the token that is used where the directory's own cannot be read. Raises ConfigError if the folder
    is not a run directory, or the orchestrator is of another version of Headrace.
    """
    preparing = in_preparation(run_dir)
    if not preparing:
        check_run_dir(run_dir)
    pid = supervisor_pid(run_dir)
    services = {
        path.stem: found for path in sorted(RunPaths(run_dir).processes.glob("*.json")) if (found := read_object(path))
    }
    services.pop("supervisor", None)
    rows = last_steps(run_dir, 1)
    status, refused = None, ""
    with contextlib.suppress(StartingError):
        status, refused = _ask(http_port(run_dir), run_dir, token_file) if pid else (None, "")
    return RunLook(
        run_dir=str(run_dir),
        supervisor=pid,
        preparing=preparing,
        services=services if pid else {},
        orchestrator=status,
        steps=int(number_of(rows[-1]["step"]) or 0) if rows else 0,
        metrics=rows[-1] if rows else {},
        evals=evals_of(run_dir),
        receipt=last_receipt(run_dir),
        refused=refused,
    )


def look_at(client: OrchestratorClient) -> RunLook:
    """Implements `look` for an orchestrator at any HTTP address: without `run_dir` and `supervisor`, `services` empty.

    Raises ConfigError if the address is not an orchestrator's, its version is another one or it does not accept
    the token, TransientError if it does not answer.
    """
    status = _status(client)
    return RunLook(
        url=client.url,
        orchestrator=status,
        steps=status.step,
        metrics={**status.trainer.metrics},
        evals=[row.model_dump(exclude_unset=True) for row in status.eval],
    )


def look_where(run_dir: Path | None, url: str, token_file: Path | None = None) -> RunLook:
    """Looks at the run directory or the URL, else at the one live run in runs/. Raises ConfigError unless it is one.

    `token_file`: of the token for the URL, or for a run of this machine whose own cannot be read.
    """
    if url:
        return look_at(find_client(run_dir, url, token_file))
    return look(run_dir or the_live_run(), token_file)


def _status(client: OrchestratorClient) -> RunStatus:
    answer = client.get("/api/status")
    if not isinstance(answer, dict) or "replicas" not in answer:
        raise ConfigError(f"{client.url} is no orchestrator: its /api/status describes no run")
    return read_answer_of(RunStatus, answer, client.url)


def show_status(shown: RunLook, console: Console) -> None:
    """Prints the status for the user."""
    if shown.orchestrator:
        show_table(console, draw(view_of(shown), shown.evals))
        _show_receipt(shown.receipt, console)
        return
    doing = "running" if shown.steps and "trainer" in shown.services else "starting"
    doing = shown.preparing or doing
    state = f"{doing} (pid {shown.supervisor})" if shown.supervisor else ended_in_words(shown.run_dir)
    console.print(f"{shown.run_dir}: {state}, {shown.steps} steps done", markup=False)
    for one in unreachable(Path(shown.run_dir)) if shown.supervisor else ():
        console.print(f"{one.who} cannot reach the {one.peer} at {one.address}: {one.error}", markup=False)
    if left_out := shown.evals[:-_EVALS]:
        console.print(
            f"({len(left_out)} earlier evaluations are in {RunPaths(Path(shown.run_dir)).evals})", markup=False
        )
    for row in shown.evals[-_EVALS:]:
        console.print(eval_line(row), markup=False)
    _show_receipt(shown.receipt, console)


def _show_receipt(receipt: Receipt | None, console: Console) -> None:
    if receipt is not None:
        console.print(f"receipt of step {receipt.line.step}: {receipt.value}", markup=False)


def ended_in_words(run_dir: str) -> str:
    """Text for a run without a supervisor: under Compose or Kubernetes only the orchestrator reports its state."""
    host = read_object(RunPaths(Path(run_dir)).settings("orchestrator")).get("host", "127.0.0.1")
    return run_state(Path(run_dir)) if host in _LOOPBACK else "no supervisor here; ask containers by --url"


def view_of(shown: RunLook) -> View:
    """Converts the status to the view that `draw` takes."""
    return View(shown.orchestrator, shown.processes, (), started=shown.orchestrator is not None)


def _ask(port: int, run_dir: Path, token_file: Path | None) -> tuple[RunStatus | None, str]:
    """The status, or why the orchestrator refuses it; neither if it does not answer."""
    tokens = RunPaths(run_dir).tokens
    own = token_of(tokens, Role.VIEWER)
    try:
        return _status(
            OrchestratorClient(f"http://127.0.0.1:{port}", own or read_token(token_file or Path(), TOKEN_FILE))
        ), ""
    except TransientError:
        return None, ""
    except AccessRefusedError as error:
        found = "does not open its status" if own else "cannot be read"
        return None, f"the viewer's token in {tokens} {found}: {error}"
