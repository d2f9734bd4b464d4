"""Weights & Biases."""

import secrets
from collections.abc import Mapping

from headrace.services.trainer.trackers.completions import COLUMNS, Rows
from headrace.services.trainer.trackers.tracker import Kind, TrackedRun

_AXES: Mapping[Kind, str] = {"train": "step", "eval": "version"}


class ToWandb:
    """Logs to one run. Steps and evaluations have separate axes: an evaluation may end after later steps are logged."""

    def __init__(self, place: TrackedRun) -> None:
        self._place = place

    def start(self, config: Mapping[str, object], previous: str) -> str:
        """Opens the run under a random id, or resumes `previous`, and defines both axes; returns the id."""
        import wandb

        table, place = self._place.table.wandb, self._place
        run = previous or secrets.token_hex(8)
        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            **({"base_url": table.url} if table.url else {}),
        )
        self._run = wandb.init(
            id=run,
            resume="allow",
            project=place.table.project,
            name=place.name,
            entity=table.entity or None,
            mode=table.mode,
            dir=str(table.dir if table.dir.parts else place.folder),
            config=dict(config),
            settings=settings,
        )
        for kind, axis in _AXES.items():
            self._run.define_metric(f"{kind}/{axis}", hidden=True)
            self._run.define_metric(f"{kind}/*", step_metric=f"{kind}/{axis}")
        return run

    def log(self, kind: Kind, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Logs `train/` or `eval/` numbers on the axis `train/step` or `eval/version`."""
        self._run.log({f"{kind}/{name}": value for name, value in numbers.items()} | {f"{kind}/{_AXES[kind]}": step})

    def log_completions(self, step: int, rows: Rows) -> None:
        """Logs a table `completions` on the axis `train/step`."""
        import wandb

        table = wandb.Table(columns=list(COLUMNS), data=[[row[name] for name in COLUMNS] for row in rows])
        self._run.log({"completions": table, f"train/{_AXES['train']}": step})

    def log_receipt(self, step: int, receipt: str) -> None:
        """Writes `receipt` and `receipt_step` into the run's summary."""
        self._run.summary.update({"receipt": receipt, "receipt_step": step})

    def finish(self) -> None:
        """Finishes the run."""
        self._run.finish()
