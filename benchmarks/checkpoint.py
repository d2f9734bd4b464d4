"""How long a checkpoint holds the training thread: written by it (as before), and copied and written beside it.

`python -m benchmarks.checkpoint [--mb 480] [--repeats 5] [--folder .]`

Tensors of a model with AdamW's moments in float32. `before`: save_file, each file read back for its SHA-256, fsync,
rename. `held`: the call that begins the copy, and the wait for its end after a step of half a second of matrix products
on one thread (`step`, and `step_beside_copy`). `share`: what is held, of `before`. The two take turns; medians, in
seconds of the wall. The last line is a JSON object.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import Files, HostCopy
from headrace.wire.rundir import atomic
from headrace.wire.rundir.file_digests import sha256_of_files


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


def passes(rows: Tensor, count: int) -> None:
    """What training does beside the copy."""
    for _ in range(count):
        torch.mm(rows, rows)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=480.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the file system to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files, copy, writer = state(options.mb), HostCopy(torch.device("cpu")), BackgroundWriter("the checkpoint")
    rows = torch.randn(1024, 1024)
    count = round(0.5 / seconds(lambda: passes(rows, 10)) * 10)
    found: dict[str, list[float]] = {"before": [], "held": [], "step": [], "step_beside_copy": [], "written": []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = CheckpointStore(Path(folder) / "now", keep=1)
        for number in range(1, options.repeats + 1):
            found["before"].append(seconds(lambda: before(Path(folder) / "before", files)))
            found["step"].append(seconds(lambda: passes(rows, count)))
            begin = time.perf_counter()
            copied = copy.take({name: tensors.items() for name, tensors in files.items()}, beside=True)
            called = time.perf_counter() - begin
            found["step_beside_copy"].append(seconds(lambda: passes(rows, count)))
            found["held"].append(called + seconds(copy.settle))
            described = CheckpointState(
                step=number, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest=""
            )
            writer.start(partial(_save, store, described, copied.result()))
            found["written"].append(seconds(writer.wait))
    medians = {name: round(statistics.median(times), 4) for name, times in found.items()}
    share = medians["held"] / medians["before"]
    print(json.dumps({"mb": options.mb, **medians, "first_held": round(found["held"][0], 4), "share": round(share, 4)}))


def _save(store: CheckpointStore, described: CheckpointState, files: Files) -> None:
    store.save(described, files)


if __name__ == "__main__":
    main()
