"""The files of a run directory that the dashboard reads."""

from dataclasses import dataclass
from pathlib import Path

from headrace.services.orchestrator.dashboard.readers.curves import Curves
from headrace.services.orchestrator.dashboard.readers.records import Evals, RunLog
from headrace.services.orchestrator.dashboard.readers.rollout_index import RolloutIndex
from headrace.services.orchestrator.dashboard.readers.tokens import Decoder
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, eq=False)
class Files:
    """Readers of one run directory, which the board keeps current."""

    run_dir: Path
    curves: Curves
    evals: Evals
    log: RunLog
    rollouts: RolloutIndex
    evaluations: RolloutIndex
    """The rollouts of the newest evaluations, by version."""
    decoder: Decoder

    @classmethod
    def of(cls, run_dir: Path, model: Path) -> "Files":
        """Readers of `run_dir`; `model` is the folder of the policy's tokenizer, which may be missing."""
        run = RunPaths(run_dir)
        return cls(
            run_dir,
            Curves(run.metrics),
            Evals(run.evals),
            RunLog(run_dir),
            RolloutIndex(run.rollouts),
            RolloutIndex(run.evaluations),
            Decoder([run_dir, model, run.export, run.demo_model]),
        )
