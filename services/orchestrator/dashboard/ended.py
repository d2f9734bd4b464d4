"""A run of which nothing is alive, out of its files: the same answers as a live one's."""

import contextlib
import sqlite3
import time
import tomllib
from pathlib import Path
from typing import Any

from services.orchestrator.dashboard.bottleneck import bottleneck
from services.orchestrator.dashboard.files import Files
from wire.errors import ConfigError

_STATES = {"run_ended": "finished", "run_stopped": "stopped"}


def read_config(run_dir: Path) -> dict[str, Any]:
    """The tables of `RUN/config/run.toml`; raises ConfigError if the folder is no run directory."""
    file = run_dir / "config" / "run.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run_dir} is not a run directory: {file}: {error}") from None


def table_of(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """One table; empty where there is none of the name."""
    found = tables.get(name)
    return found if isinstance(found, dict) else {}


def run_view(run_dir: Path, run_id: str, began: float | None) -> dict[str, Any]:
    """`run` of the status."""
    return {"id": run_id, "run_dir": str(run_dir), "name": run_dir.resolve().name, "began": began}


class EndedRun:
    """Reads through the files that the board keeps current."""

    def __init__(self, files: Files) -> None:
        """Raises ConfigError if the folder is no run directory."""
        self._files = files
        self._run: dict[str, Any] = table_of(read_config(files.run_dir), "run")
        self._groups = _groups(files.run_dir / "state.sqlite")

    def status(self) -> dict[str, Any]:
        """See `Source`."""
        last = self._last()
        step = int(last["step"])
        state = self._state(step)
        status: dict[str, Any] = {
            "run": run_view(self._files.run_dir, str(self._run.get("id", "run")), self._files.log.began),
            "state": state,
            "reason": "",
            "step": step,
            "max_steps": self._max_steps(step),
            "version": step,
            "incarnation": int(last.get("incarnation", 0)),
            "eval": self.evals(),
            "evaluating": "",
            "waiting_for": "",
            "credit": {"issued": self._groups["open"], "limit": 0},
            "groups": self._groups,
            "trainer": self.trainer(),
            "replicas": self.replicas(),
            "streams": self.streams(),
            "publication": None,
            "operator": {"paused": False, "stopping": False, "checkpoint_asked": False, "draining": []},
            "now": round(time.time(), 3),
        }
        return status | {"bottleneck": bottleneck(status)}

    def state(self) -> str:
        """See `Source`."""
        return self._state(int(self._last()["step"]))

    def evals(self) -> list[dict[str, Any]]:
        """See `Source`."""
        return self._files.evals.all

    def replicas(self) -> list[dict[str, Any]]:
        """See `Source`: none lives."""
        return []

    def trainer(self) -> dict[str, Any]:
        """See `Source`."""
        last = self._last()
        return {
            "state": "finished" if self.state() == "finished" else "absent",
            "waiting_for": "",
            "waiting_share": float(last.get("wait_batch_share", 0.0)),
            "metrics": last,
        }

    def streams(self) -> dict[str, dict[str, Any]]:
        """See `Source`: nobody looks at them."""
        return {}

    def publications(self) -> list[dict[str, Any]]:
        """See `Source`."""
        return self._files.log.publications

    def _last(self) -> dict[str, Any]:
        rows = self._files.curves.rows
        return rows.row(len(rows) - 1) if len(rows) else {"step": 0}

    def _max_steps(self, otherwise: int) -> int:
        found = self._run.get("max_steps")
        return found if type(found) is int else otherwise

    def _state(self, step: int) -> str:
        """By the last word of the orchestrator; one that was killed has said none."""
        for record in self._files.log.newest(50):
            if record["service"] == "orchestrator" and record["event"] in _STATES:
                return _STATES[str(record["event"])]
        return "finished" if step and step >= self._max_steps(step + 1) else "stopped"


def _groups(path: Path) -> dict[str, Any]:
    """Counts as the live status has them; zeros where the table is gone or damaged."""
    query = (
        "SELECT CASE WHEN step IS NULL THEN 'open' WHEN step > 0 THEN 'trained' ELSE reason END, COUNT(*) "
        "FROM groups GROUP BY 1"
    )
    counts: dict[str, int] = {}
    if path.is_file():
        # Without a log to read, SQLite would make one, even to read only: to look changes nothing in a run directory.
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as db,
        ):
            counts = {str(fate): int(count) for fate, count in db.execute(query)}
    trained, num_open = counts.pop("trained", 0), counts.pop("open", 0)
    issued = trained + num_open + sum(counts.values())
    return {"issued": issued, "trained": trained, "dropped": counts, "open": num_open}
