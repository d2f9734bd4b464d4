"""One rank of a trainer's models: two steps of an algorithm, then everything that a checkpoint holds, into a folder.

python -m tests.integration.trainer.learner_rank FOLDER RANKS BACKEND ALGORITHM CONTEXT
"""

import json
import mmap
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.topology import read_place
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import load_learner
from headrace.wire.process.entry import end_process
from tests.ranks import assemble_ranks, through_checkpoint
from tests.unit.services.trainer.builders import scored_group
from tests.unit.services.trainer.discriminator.test_discriminator import with_reference

GROUPS = [with_reference(scored_group(index, rewards=[1, 0, 0.5, 0]), "abca") for index in range(3)]


def two_steps(folder, ranks, *, backend, algorithm):
    """Metrics of both steps, and all tensors afterwards (on rank 0)."""
    settings = TrainerSettings.model_validate(
        {
            "model": {"path": folder / "model"},
            "algorithm": {"name": algorithm, "kl_coef": 0.1, "minibatches": 2},
            "critic": {"learning_rate": 1e-2},
            "discriminator": {"every": 1, "learning_rate": 1e-3},
            "trainer": {
                "learning_rate": 1e-3,
                "micro_batch_tokens": 60,
                "backend": backend,
                "ranks": ranks.size,
                "cp": ranks.context_size,
            },
            "run_dir": folder / backend,
        }
    )
    learner = load_learner(settings, ranks, torch.device("cpu"))
    outcomes = [learner.train(1, GROUPS)]
    if ranks.size > 1 and ranks.rank == ranks.size - 1:
        with mmap.mmap(-1, 400 << 20) as area:
            for start in range(0, len(area), mmap.PAGESIZE):
                area[start] = 1
    outcomes.append(learner.train(2, GROUPS))
    metrics = [outcome.metrics | outcome.peaks for outcome in outcomes]
    learner.publish_discriminator()
    files = {kind: values.items() for kind, values in learner.save().files.items()}
    saved = through_checkpoint(folder / backend / "checkpoints", ranks, files)
    kinds = {"policy": saved.weights, **saved.others}
    return metrics, {f"{kind}/{name}": value for kind, values in kinds.items() for name, value in values.items()}


def main() -> None:
    folder, size, backend, algorithm = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    place = read_place(sys.argv[6:])
    torch.set_num_threads(1)
    ranks = assemble_ranks(
        size, place, device=torch.device("cpu"), timeout_s=120, grouped=True, context=int(sys.argv[5])
    )
    metrics, tensors = two_steps(folder, ranks, backend=backend, algorithm=algorithm)
    if ranks.rank == 0:
        (folder / f"{backend}.json").write_text(json.dumps(metrics))
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / f"{backend}.safetensors")
    assert isinstance(ranks, Ranks)
    ranks.leave()


if __name__ == "__main__":
    main()
    end_process(0)
