"""One of three ranks: `sealed_ranks FOLDER`. Once all are there, rank 0 writes where it listens."""

import json
import os
import sys
from pathlib import Path

import psutil
import torch
from torch import distributed as dist

from headrace.services.trainer.distributed.topology import read_place
from headrace.services.trainer.learner.commands import Commands
from tests.ranks import assemble_ranks

SIZE = 3


def main(folder: Path) -> None:
    place = read_place(sys.argv[2:])
    ranks = assemble_ranks(SIZE, place, device=torch.device("cpu"), timeout_s=90.0)
    assert ranks.store is not None
    commands = Commands(ranks.store, SIZE, rank=ranks.rank, token="of the run")
    if ranks.rank == 0:
        process = psutil.Process()
        own = [one.laddr.port for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
        store = next(
            int(child.cmdline()[child.cmdline().index("--rank-port") + 1])
            for child in process.children()
            if "--rank-port" in child.cmdline()
        )
        (folder / "ports.json").write_text(json.dumps({"store": store, "listening": own}))
        commands.send("step", (b"payload",), number=7)
    else:
        command = commands.next()
        assert (command.name, command.values, command.payloads) == ("step", {"number": 7}, (b"payload",))
    # What a backend makes later meets over the connections that there are.
    pair = dist.new_group([0, 2])
    if ranks.rank in (0, 2):
        number = torch.ones(1)
        dist.all_reduce(number, group=pair)
        assert number.item() == 2
    if ranks.rank == 0:
        (folder / "done").touch()
    ranks.leave()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
