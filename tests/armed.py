"""Arms a failpoint of a process (see `headrace.wire.process.failpoints`)."""

from pathlib import Path

from headrace.wire.process.failpoints import VARIABLE


def arm(folder: Path, name: str, passes: int) -> dict[str, str]:
    """The environment in which a process dies at `name`, SERVICE.POINT, once it has passed it so often."""
    for kind in ("armed", "reached", "struck"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "armed" / name).write_text(str(passes))
    return {VARIABLE: str(folder)}
