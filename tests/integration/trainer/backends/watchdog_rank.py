"""One rank that makes its training groups while publications make theirs: `watchdog_rank FOLDER BACKEND SIZE`.

Each rank writes FOLDER/RANK.json: what the constructor of every training group read of the variable that takes the
watchdog from an NCCL group, at its begin and at its end.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
from torch.distributed import distributed_c10d as c10d

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.launch import assemble_ranks
from headrace.services.trainer.distributed.topology import read_place
from headrace.wire.weights.collective import without_watchdog
from tests.integration.trainer.backends import work

NAME = "TORCH_NCCL_BLOCKING_WAIT"
PUBLICATIONS = 4
TIMEOUT_S = 90.0

seen: list[tuple[str | None, str | None]] = []
published: list[str | None] = []
over = threading.Event()


class Recording(c10d.ProcessGroupGloo):
    """The real one, which reads the variable as NCCL's constructor would; that takes its time."""

    def __init__(self, *arguments: object, **options: object) -> None:
        first = os.environ.get(NAME)
        time.sleep(0.1)
        seen.append((first, os.environ.get(NAME)))
        super().__init__(*arguments, **options)  # type: ignore[arg-type]


def publish() -> None:
    def construct() -> None:
        time.sleep(0.02)
        published.append(os.environ.get(NAME))

    while not over.wait(0.001):
        without_watchdog(construct)


def main(folder: Path, backend: str, size: int) -> None:
    torch.set_num_threads(1)
    c10d.ProcessGroupGloo = Recording  # type: ignore[misc]
    join = Ranks.join

    def join_while_publishing(*arguments: object, **options: object) -> Ranks:
        # Not before: a process that is started inherits the variable.
        for _ in range(PUBLICATIONS):
            threading.Thread(target=publish, daemon=True).start()
        while not published:
            time.sleep(0.01)
        return join(*arguments, **options)  # type: ignore[arg-type]

    Ranks.join = join_while_publishing  # type: ignore[method-assign, assignment]
    cpu = torch.device("cpu")
    ranks = assemble_ranks(size, read_place(sys.argv[4:]), device=cpu, timeout_s=TIMEOUT_S, grouped=True)
    made = make_backend(work.policy(), ranks, cpu, work.options(backend))
    # Whatever is made only when it is needed.
    for _ in range(2):
        work.one_step(made)
    over.set()
    found = {"seen": seen, "published": sorted({str(value) for value in published}), "count": len(published)}
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))
    ranks.leave()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
