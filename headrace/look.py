"""`headrace status`: a live run is asked, an ended one is read."""

import asyncio
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.results import evals_of, steps_of
from headrace.screen import draw, eval_line
from headrace.supervisor.lock import supervisor_pid
from headrace.supervisor.readiness import Faces
from headrace.supervisor.supervisor import View
from wire.errors import ConfigError, TransientError


def look(run_dir: Path) -> dict[str, Any]:
    """`supervisor` (pid or None), `services` (pid files), `orchestrator` (its status, or None), `steps`, `eval`.

    Raises ConfigError if the folder is no run directory.
    """
    if not (run_dir / "config" / "run.toml").is_file():
        raise ConfigError(f"{run_dir} is not a run directory (it has no config/run.toml)")
    pid = supervisor_pid(run_dir)
    services = {path.stem: _pid_file(path) for path in sorted((run_dir / "run").glob("*.json")) if _pid_file(path)}
    services.pop("supervisor", None)
    port = int(services.get("orchestrator", {}).get("http_port", 0))
    steps = steps_of(run_dir)
    return {
        "run_dir": str(run_dir),
        "supervisor": pid,
        "services": services if pid else {},
        "orchestrator": asyncio.run(_ask(port)) if pid and port else None,
        "steps": max(steps, default=0),
        "metrics": steps[max(steps)] if steps else {},
        "eval": evals_of(run_dir),
    }


def show_status(shown: dict[str, Any], console: Console) -> None:
    """The same for a person."""
    if shown["orchestrator"]:
        names = {name: f"pid {one['pid']}" for name, one in shown["services"].items()}
        console.print(draw(View(shown["orchestrator"], names, ()), shown["eval"]))
        return
    doing = "running" if shown["steps"] and "trainer" in shown["services"] else "starting"
    state = f"{doing} (pid {shown['supervisor']})" if shown["supervisor"] else "not running"
    console.print(f"{shown['run_dir']}: {state}, {shown['steps']} steps done", markup=False)
    for row in shown["eval"]:
        console.print(eval_line(row), markup=False)


async def _ask(port: int) -> dict[str, Any] | None:
    faces = Faces()
    try:
        return await faces.status(port)
    except TransientError:
        return None
    finally:
        await faces.close()


def _pid_file(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
