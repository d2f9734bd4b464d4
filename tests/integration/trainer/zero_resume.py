"""One rank of DeepSpeed: `zero_resume FOLDER STAGE`. Loads FOLDER's checkpoints of other optimizers, and steps."""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from structlog.testing import capture_logs

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.distributed.launch import assemble_ranks
from headrace.services.trainer.distributed.topology import read_place
from headrace.services.trainer.model.optimizers import OPTIMIZERS
from tests.integration.trainer.backends import work


def main(folder: Path, stage: int) -> None:
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    ranks = assemble_ranks(1, read_place([]), device=cpu, timeout_s=60.0, grouped=True)
    backend = make_backend(
        work.policy(seed=9), ranks, cpu, work.options("deepspeed", zero_stage=stage, persistent_elements=0)
    )
    found = {}
    for name in (*OPTIMIZERS, "none"):
        weights = load_file(folder / "weights.safetensors")
        state = {} if name == "none" else load_file(folder / f"{name}.safetensors")
        with capture_logs() as logs:
            backend.load(weights, state)
        found[name] = {
            "dropped": [line["saved"] for line in logs if line["event"] == "optimizer_state_dropped"],
            "seen": [work.one_step(backend) for _ in range(2)],
        }
    (folder / f"zero{stage}.json").write_text(json.dumps(found))
    ranks.leave()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
