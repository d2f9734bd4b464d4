"""Current status of a run: from the orchestrator of a live one, from the files of an ended one."""

import asyncio
import ipaddress
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from headrace.inspect.results import evals_of, last_steps
from headrace.inspect.screen import draw, eval_line, show_table
from headrace.inspect.waits import parties
from headrace.supervisor.lock import supervisor_pid
from headrace.supervisor.readiness import ReadinessClient
from headrace.supervisor.supervisor import View
from headrace.wire.errors import ConfigError, TransientError

_ANSWER_S = 10.0
_USUAL = Path("runs")


def look(run_dir: Path) -> dict[str, Any]:
    """Returns `supervisor` (pid or None), `services` (pid files), `orchestrator` (its status, or None), `steps`,
    `metrics`, `eval`, and `waits`: which party waits for what, since when and until when, in unix seconds.

    Raises ConfigError if the folder is not a run directory.
    """
    if not (run_dir / "config" / "run.toml").is_file():
        raise ConfigError(f"{run_dir} is not a run directory (it has no config/run.toml)")
    pid = supervisor_pid(run_dir)
    services = {path.stem: _json_file(path) for path in sorted((run_dir / "run").glob("*.json")) if _json_file(path)}
    services.pop("supervisor", None)
    port = int(services.get("orchestrator", {}).get("http_port", 0))
    rows = last_steps(run_dir, 1)
    status = asyncio.run(_ask(port)) if pid and port else None
    shown = {
        "run_dir": str(run_dir),
        "supervisor": pid,
        "services": services if pid else {},
        "orchestrator": status,
        "steps": int(rows[-1]["step"]) if rows else 0,
        "metrics": rows[-1] if rows else {},
        "eval": evals_of(run_dir),
    }
    return shown | _waits(shown)


def look_at(url: str) -> dict[str, Any]:
    """Implements `look` for an orchestrator at any HTTP address: without `run_dir` and `supervisor`, `services` empty.

    Raises ConfigError if the address is not that of an orchestrator, TransientError if it does not answer.
    """
    status = ask(url, "/api/status")
    if not isinstance(status, dict) or "replicas" not in status:
        raise ConfigError(f"{url} is no orchestrator: its /api/status does not tell of a run")
    shown = {
        "url": url,
        "services": {},
        "orchestrator": status,
        "steps": int(status.get("step") or 0),
        "metrics": (status.get("trainer") or {}).get("metrics") or {},
        "eval": status.get("eval") or [],
    }
    return shown | _waits(shown)


def look_where(run_dir: Path | None, url: str) -> dict[str, Any]:
    """Looks at the run directory or the URL, else at the one live run in runs/. Raises ConfigError unless it is one."""
    if url and run_dir is None:
        return look_at(url)
    live = [run_dir] if run_dir else [path for path in sorted(_USUAL.glob("*")) if supervisor_pid(path)]
    if url or len(live) != 1:
        found = ", ".join(map(str, live)) or f"none in {_USUAL}/"
        raise ConfigError(f"say which run: a RUN_DIR, or --url with the address of its orchestrator (alive: {found})")
    return look(live[0])


def ask(url: str, path: str) -> Any:
    """GETs JSON from an orchestrator's HTTP API. Raises ConfigError, or TransientError if it does not answer."""
    base = httpx.URL(url)
    if base.scheme not in ("http", "https") or not base.host:
        raise ConfigError(f"--url {url}: give an address such as http://127.0.0.1:8080")
    try:
        with httpx.Client(timeout=_ANSWER_S, trust_env=not _is_near(base.host)) as http:
            answer = http.get(url.rstrip("/") + path)
            answer.raise_for_status()
            return answer.json()
    except httpx.HTTPStatusError as error:
        raise ConfigError(f"{url} is no orchestrator: {path} answers with {error.response.status_code}") from None
    except httpx.HTTPError as error:
        raise TransientError(f"no orchestrator answers at {url}: {str(error) or type(error).__name__}") from error
    except ValueError:
        raise ConfigError(f"{url} is no orchestrator: {path} answers with something that is not JSON") from None


def show_status(shown: dict[str, Any], console: Console) -> None:
    """Prints the status for the user."""
    if shown["orchestrator"]:
        show_table(console, draw(view_of(shown), shown["eval"]))
        return
    doing = "running" if shown["steps"] and "trainer" in shown["services"] else "starting"
    state = f"{doing} (pid {shown['supervisor']})" if shown["supervisor"] else _not_running(shown["run_dir"])
    console.print(f"{shown['run_dir']}: {state}, {shown['steps']} steps done", markup=False)
    for row in shown["eval"]:
        console.print(eval_line(row), markup=False)


def _not_running(run_dir: str) -> str:
    """Text for a run without a supervisor: under Compose or Kubernetes only the orchestrator reports its state."""
    host = _json_file(Path(run_dir) / "config" / "orchestrator.json").get("host", "127.0.0.1")
    return "not running" if _is_near(str(host)) else "no supervisor here; a run of containers is asked by --url"


def view_of(shown: dict[str, Any], notices: tuple[str, ...] = ()) -> View:
    """Converts the status to the view that `draw` takes."""
    return View(shown["orchestrator"] or {}, _processes(shown), notices)


def _waits(shown: dict[str, Any]) -> dict[str, Any]:
    status = shown["orchestrator"]
    return {"waits": [asdict(party) for party in parties(status, _processes(shown))] if status else []}


def _processes(shown: dict[str, Any]) -> dict[str, str]:
    return {name: f"pid {one['pid']}" for name, one in shown["services"].items()}


def _is_near(host: str) -> bool:
    """Whether the host is loopback, for which a proxy of the environment must not be used."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _ask(port: int) -> dict[str, Any] | None:
    faces = ReadinessClient()
    try:
        return await faces.status(port)
    except TransientError:
        return None
    finally:
        await faces.close()


def _json_file(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
