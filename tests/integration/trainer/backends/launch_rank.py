"""A trainer of some ranks in which something goes wrong: `launch_rank SIZE WHAT`."""

import os
import signal
import sys
import time

import torch

from headrace.services.trainer.distributed.launch import assemble_ranks
from headrace.services.trainer.distributed.topology import read_place
from headrace.wire.entry import GIVEN_UP
from headrace.wire.errors import TransientError

TIMEOUT_S = 60.0


def main(size: int, what: str) -> None:
    place = read_place(sys.argv[3:])
    if what == "late" and place.rank:
        time.sleep(600)
    limit = 8.0 if what == "late" else TIMEOUT_S
    try:
        ranks = assemble_ranks(size, place, device=torch.device("cpu"), timeout_s=limit)
    except TransientError as error:
        say(str(error))
        os._exit(1)
    mine = torch.arange(ranks.rank + 1) + 10 * ranks.rank
    found = [part.tolist() for part in ranks.gather(mine)]
    total = float(ranks.sum(torch.tensor(float(ranks.rank + 1))))
    asked = (ranks.agree(ranks.rank == 1), ranks.agree(False))
    if ranks.rank == 0:
        say(f"{found} {total} {asked}")
    # Who ends while another is still in a collective with it ends that one by an error.
    ranks.store.set(f"through {ranks.rank}", "")
    ranks.store.wait([f"through {rank}" for rank in range(size)])
    if what == "killed" and ranks.rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "refuses" and ranks.rank == size - 1:
        os._exit(GIVEN_UP)
    if what == "leaves" and ranks.rank == 0:
        say(f"pid {os.getpid()}")
        os._exit(0)
    if what != "ends":
        time.sleep(600)
    ranks.leave()
    os._exit(0)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
