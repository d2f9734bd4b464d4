"""All trackers of a run: made from `[trackers]`, started beside it, ended with it."""

import time
from collections.abc import Callable, Sequence

from headrace.services.trainer.config.trackers import TrackerName, TrackersTable, check_installed
from headrace.services.trainer.trackers.delivery import Delivery
from headrace.services.trainer.trackers.to_mlflow import ToMlflow
from headrace.services.trainer.trackers.to_tensorboard import ToTensorBoard
from headrace.services.trainer.trackers.to_trackio import ToTrackio
from headrace.services.trainer.trackers.to_wandb import ToWandb
from headrace.services.trainer.trackers.tracker import TrackedRun, Tracker
from headrace.wire.config.settings import ServiceSettings
from headrace.wire.rundir.layout import RunPaths

_HURRY_S = 3.0
"""Longest that a process which was asked to stop waits for its trackers."""
# The adapters import their libraries when they start, on the tracker's thread.
_ADAPTERS: dict[TrackerName, Callable[[TrackedRun], Tracker]] = {
    "wandb": ToWandb,
    "tensorboard": ToTensorBoard,
    "mlflow": ToMlflow,
    "trackio": ToTrackio,
}
_SENT = ("run", "model", "batch", "algorithm", "critic", "discriminator", "trainer", "sft", "reward_model", "dpo")
"""Tables sent to trackers; none of them holds addresses, which may contain passwords."""


class Trackers:
    """All deliveries of a run. Does nothing if there are none."""

    def __init__(self, deliveries: Sequence[Delivery], *, finish_s: float) -> None:
        self._deliveries, self._finish_s = deliveries, finish_s

    def start(self) -> None:
        """Starts the deliveries."""
        for delivery in self._deliveries:
            delivery.start()

    def finish(self, *, hurry: bool = False, step: int = 0, receipt: str = "") -> None:
        """Lets all trackers take the remaining lines, in parallel, for `finish_s` in all (`hurry`: three seconds).

        `receipt`: of the run's files after `step`, for all trackers; empty if none was taken.
        """
        end = time.monotonic() + (min(self._finish_s, _HURRY_S) if hurry else self._finish_s)
        for delivery in self._deliveries:
            delivery.ask_to_finish(step=step, receipt=receipt)
        for delivery in self._deliveries:
            delivery.finish(max(end - time.monotonic(), 0.0))


def make_trackers(settings: ServiceSettings, table: TrackersTable) -> Trackers:
    """Builds the trackers of `[trackers]`. Raises ConfigError for one that is not installed."""
    check_installed(table)
    folder = RunPaths(settings.run_dir).trackers
    if table.use:
        folder.mkdir(exist_ok=True)
    place = TrackedRun(run_id=settings.run.id, name=table.name or settings.run_dir.name, folder=folder, table=table)
    config, most = sent_config(settings), table.completions
    deliveries = [Delivery(name, _ADAPTERS[name](place), folder, config, completions=most) for name in table.use]
    return Trackers(deliveries, finish_s=table.finish_s)


def sent_config(settings: ServiceSettings) -> dict[str, object]:
    """The part of a run's config that is sent to trackers."""
    return settings.model_dump(mode="json", include=set(_SENT))
