"""What the dashboard reads of a run directory."""

from dataclasses import dataclass
from pathlib import Path

from services.orchestrator.dashboard.curves import Curves
from services.orchestrator.dashboard.records import Evals, RunLog
from services.orchestrator.dashboard.shelf import Shelf
from services.orchestrator.dashboard.tokens import Decoder


@dataclass(frozen=True, eq=False)
class Files:
    """Each is kept current by the board."""

    run_dir: Path
    curves: Curves
    evals: Evals
    log: RunLog
    shelf: Shelf
    decoder: Decoder

    @classmethod
    def of(cls, run_dir: Path, model: Path) -> "Files":
        """`model` is the folder of the policy's tokenizer; it need not be there."""
        return cls(
            run_dir,
            Curves(run_dir / "metrics.jsonl"),
            Evals(run_dir / "evals.jsonl"),
            RunLog(run_dir),
            Shelf(run_dir / "rollouts"),
            Decoder([run_dir, model, run_dir / "export", run_dir / "demo" / "model"]),
        )
