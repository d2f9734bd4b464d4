"""One rank of a trainer over two machines that does nothing but meet and sum: `nodes_rank FOLDER`.

FOLDER/settings.json is a trainer's; HEADRACE_NODE says which machine. Each rank adds lines to FOLDER/lives.jsonl.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.stop import StoppedError, StopSignal
from headrace.services.trainer.distributed.topology import settle_place
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.entry import end_process, exit_code, read_settings
from headrace.wire.telemetry import configure_logging


def report(folder: Path, what: str, **more: object) -> None:
    line = json.dumps({"what": what, "pid": os.getpid(), **more}) + "\n"
    with (folder / "lives.jsonl").open("a") as file:
        file.write(line)


def main(folder: Path) -> int:
    settings = read_settings(TrainerSettings, folder / "settings.json")
    place = settle_place(settings, sys.argv[2:])
    configure_logging("trainer", "run", str(place.rank))
    torch.set_num_threads(1)
    stop = StopSignal()
    stop.install()
    options = LaunchOptions.of(settings, place, grouped=False)
    processes = RankProcesses(place, options, stop if place.first else None)
    with processes.joined() as ranks:
        report(folder, "joined", rank=place.rank, life=ranks.store.get("life").decode())
        while not ranks.agree(place.rank == 0 and (stop.asked() or (folder / "end").exists())):
            time.sleep(0.02)
        ranks.leave()
    report(folder, "left", rank=place.rank, signalled=stop.signalled)
    return 0


if __name__ == "__main__":
    try:
        code = main(Path(sys.argv[1]))
    except StoppedError:
        code = 0
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        code = exit_code(error)
    end_process(code)
