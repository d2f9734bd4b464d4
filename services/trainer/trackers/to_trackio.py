"""Trackio: a local database that `trackio show` shows, or a Hugging Face Space."""

from collections.abc import Mapping

from headrace.services.trainer.trackers.completions import COLUMNS, Rows
from headrace.services.trainer.trackers.tracker import Kind, TrackedRun


class ToTrackio:
    """A run is known by its name in its project."""

    def __init__(self, place: TrackedRun) -> None:
        self._place = place

    def start(self, config: Mapping[str, object], previous: str) -> str:
        """Opens the run by its name, resuming `previous`; returns the name."""
        import trackio

        place = self._place
        self._run = trackio.init(
            project=place.table.project,
            name=previous or place.name,
            resume="allow" if previous else "never",
            space_id=place.table.trackio.space or None,
            config=dict(config),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return str(self._run.name)

    def log(self, kind: Kind, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Logs `train/` or `eval/` numbers."""
        self._run.log({f"{kind}/{name}": value for name, value in numbers.items()}, step=step)

    def log_completions(self, step: int, rows: Rows) -> None:
        """Logs a table `completions`."""
        import trackio
        from pandas import DataFrame

        self._run.log({"completions": trackio.Table(dataframe=DataFrame(list(rows), columns=list(COLUMNS)))}, step=step)

    def log_receipt(self, step: int, receipt: str) -> None:
        """Logs the text `receipt` at that step."""
        self._run.log({"receipt": receipt}, step=step)

    def finish(self) -> None:
        """Finishes the run."""
        self._run.finish()
