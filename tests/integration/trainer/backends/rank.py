"""One rank of a small world: `rank FOLDER CASES SIZE CONTEXT`. Rank 0 starts the others and writes what came out."""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.distributed.topology import read_place
from tests.integration.trainer.backends import cases
from tests.ranks import assemble_ranks

TIMEOUT_S = 90.0


def main(folder: Path, names: list[str], size: int, context: int) -> None:
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    place = read_place(sys.argv[5:])
    ranks = assemble_ranks(size, place, device=cpu, timeout_s=TIMEOUT_S, grouped=True, context=context)
    for name in names:
        numbers, tensors = cases.CASES[name](lambda module, options: make_backend(module, ranks, cpu, options), folder)
        if ranks.rank == 0:
            save_file(
                {key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}-{size}.safetensors"
            )
            (folder / f"{name}-{size}.json").write_text(json.dumps(numbers))
    ranks.leave()
    os._exit(0)


def read(folder: Path, name: str, size: int):
    return json.loads((folder / f"{name}-{size}.json").read_text()), load_file(folder / f"{name}-{size}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4]))
