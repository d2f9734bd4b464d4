"""A trainer of some ranks in which something goes wrong: `launch_rank SIZE WHAT`."""

import os
import signal
import sys
import time

import torch

from headrace.services.trainer.distributed.topology import read_place
from tests.ranks import assemble_ranks

TIMEOUT_S = 60.0


def main(size: int, what: str) -> None:
    place = read_place(sys.argv[3:])
    ranks = assemble_ranks(size, place, device=torch.device("cpu"), timeout_s=TIMEOUT_S)
    ranks.sum(torch.tensor(1.0))
    # Who ends while another is still in a collective with it ends that one by an error.
    ranks.store.set(f"through {ranks.rank}", "")
    ranks.store.wait([f"through {rank}" for rank in range(size)])
    if what == "killed" and ranks.rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "leaves" and ranks.rank == 0:
        os._exit(0)
    time.sleep(600)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
