"""TensorBoard: event files in a folder."""

import json
from collections.abc import Mapping

from headrace.services.trainer.trackers.completions import COLUMNS, Rows
from headrace.services.trainer.trackers.tracker import Kind, TrackedRun

_FLUSH_S = 5


class ToTensorBoard:
    """A resumed run writes a further file into the same folder; TensorBoard shows them as one."""

    def __init__(self, place: TrackedRun) -> None:
        own = place.table.tensorboard.dir
        # Several runs in one folder of the user's are distinguished by their names.
        self._folder = own / place.name if own.parts else place.folder / "tensorboard"

    def start(self, config: Mapping[str, object], previous: str) -> str:
        """Opens an event file in the folder, and writes the config as text once; returns the folder."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(previous or str(self._folder), flush_secs=_FLUSH_S)
        if not previous:
            self._writer.add_text("config", f"```\n{json.dumps(config, indent=1)}\n```", 0)
        return previous or str(self._folder)

    def log(self, kind: Kind, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Writes `train/` or `eval/` scalars."""
        for name, value in numbers.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step, walltime=at or None)

    def log_completions(self, step: int, rows: Rows) -> None:
        """Writes the text `completions`, a Markdown table."""
        lines = [COLUMNS, ["-"] * len(COLUMNS), *([_cell(row[name]) for name in COLUMNS] for row in rows)]
        self._writer.add_text("completions", "\n".join(f"| {' | '.join(line)} |" for line in lines), step)

    def log_receipt(self, step: int, receipt: str) -> None:
        """Writes the text `receipt` at that step."""
        self._writer.add_text("receipt", receipt, step)

    def finish(self) -> None:
        """Closes the event file."""
        self._writer.close()


def _cell(value: object) -> str:
    """A value in a cell of a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", "<br>")
