"""How long a checkpoint holds the training thread: written by it (as before), and copied for a writer beside it.

`python -m benchmarks.checkpoint [--mb 480] [--repeats 5] [--folder .]`

Tensors of a model with AdamW's moments in float32. `before`: save_file, each file read back for its SHA-256, fsync,
rename. `now`: the first copy allocates its memory, later ones reuse it. The two take turns; medians, in seconds of the
wall. The last line is a JSON object.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import HostCopy
from headrace.wire.rundir import atomic
from headrace.wire.rundir.file_digests import sha256_of_files

Files = dict[str, dict[str, Tensor]]


def state(megabytes: float) -> Files:
    """A third weights, two thirds moments."""
    torch.manual_seed(0)
    weights = {f"layers.{index}.weight": torch.randn(int(megabytes * 1e6 / 12 / 24)) for index in range(24)}
    moments = {f"{name}/{key}": torch.rand_like(one) for name, one in weights.items() for key in ("exp_avg", "square")}
    return {"model": weights, "optimizer": moments, "random": {"torch": torch.get_rng_state()}}


def seconds(act: Callable[[], object]) -> float:
    """Wall time of a call."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def before(folder: Path, files: Files) -> None:
    """What the training thread did."""
    with atomic.replaced_folder(folder, durable=True) as aside:
        for name, tensors in files.items():
            save_file(tensors, aside / f"{name}.safetensors")
        (aside / "manifest.json").write_text(json.dumps(sha256_of_files(aside)))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=480.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the file system to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files, copy, writer = state(options.mb), HostCopy(torch.device("cpu")), BackgroundWriter()
    named = {name: tensors.items() for name, tensors in files.items()}
    held: dict[str, list[float]] = {"before": [], "copied": [], "written_beside": []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = CheckpointStore(Path(folder) / "now", keep=1)
        first = seconds(lambda: copy.take(named))
        for step in range(1, options.repeats + 1):
            held["before"].append(seconds(lambda: before(Path(folder) / "before", files)))
            held["copied"].append(seconds(lambda: copy.take(named)))
            described = CheckpointState(
                step=step, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest=""
            )
            taken = copy.take(named)
            writer.start(lambda state=described, taken=taken: store.save(state, taken))  # type: ignore[misc]
            held["written_beside"].append(seconds(writer.wait))
    found = {name: round(statistics.median(times), 3) for name, times in held.items()}
    share = found["copied"] / found["before"]
    print(json.dumps({"mb": options.mb, **found, "first_copy": round(first, 3), "held_share": round(share, 4)}))


if __name__ == "__main__":
    main()
