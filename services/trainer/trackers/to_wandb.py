"""Weights & Biases."""

import secrets
from collections.abc import Mapping
from typing import Any

from services.trainer.trackers.tracker import Place


class ToWandb:
    """Steps and evaluations have axes of their own: an evaluation ends when later steps have been told."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def start(self, config: Mapping[str, Any], previous: str) -> str:
        """See `Tracker`."""
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
        for kind, axis in (("train", "step"), ("eval", "version")):
            self._run.define_metric(f"{kind}/{axis}", hidden=True)
            self._run.define_metric(f"{kind}/*", step_metric=f"{kind}/{axis}")
        return run

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """See `Tracker`."""
        self._run.log({f"train/{name}": value for name, value in numbers.items()} | {"train/step": step})

    def log_eval(self, version: int, numbers: Mapping[str, float], at: float) -> None:
        """See `Tracker`."""
        self._run.log({f"eval/{name}": value for name, value in numbers.items()} | {"eval/version": version})

    def finish(self) -> None:
        """See `Tracker`."""
        self._run.finish()
