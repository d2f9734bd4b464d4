"""How long a step's record holds the training thread: written by it (as before), and queued and written beside it.

`python -m benchmarks.record [--rollouts 512] [--tokens 1000] [--repeats 5] [--folder .]`

The record is the numbers of the batch, its rollouts as parquet with their SHA-256, and the line of metrics. `before`:
the training thread writes it. `held`: it queues it. `step`, `step_beside`: products of matrices on one thread, alone
and while the record is written. Medians, in seconds of the wall; the last line is a JSON object.
"""

import argparse
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.checkpoint import passes, seconds
from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.staleness import UNBOUNDED, UntrainedGroups
from headrace.services.trainer.records.step_record import StepRecord, TrainedStep
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire import contracts

GROUP = 8
TIMES = {"seconds": 1.0, "wait_batch_seconds": 0.1, "wait_batch_share": 0.1, "train_seconds": 0.5, "replayed": False}
SHOWN = {"loss": 0.1, "grad_norm": 1.0}


def group(index: int, tokens: int, draw: np.random.Generator) -> ReadyGroup:
    """Answers of around `tokens` tokens."""
    name = contracts.group_id("run", index)
    made, scores = [], []
    for number in range(GROUP):
        length = int(draw.integers(tokens // 2, 3 * tokens // 2)) + 1
        at = contracts.PolicyVersion(incarnation=1, version=0)
        ids = np.minimum(draw.zipf(1.3, length), 150_000).astype(np.int32)
        made.append(
            contracts.Rollout(
                rollout_id=contracts.rollout_id(name, number), token_ids=ids, text=" ".join(map(str, ids)),
                logprobs=-draw.exponential(0.3, length).astype(np.float32), finish_reason=contracts.FinishReason.STOP,
                spans=(contracts.VersionSpan(start=0, end=length, version=at, weights_digest="d" * 64),),
            )
        )  # fmt: skip
        scores.append(contracts.Score(rollout_id=made[-1].rollout_id, value=1.0, components={"exact": 1.0}))
    sampling, prompt = contracts.Sampling(max_tokens=2 * tokens), draw.integers(2, 1000, 200).astype(np.int32)
    asked = contracts.PromptGroup(sample_id="s", token_ids=prompt, group_size=GROUP, sampling=sampling)
    body = contracts.ScoredGroup(group=contracts.RolloutGroup(prompt=asked, rollouts=tuple(made)), scores=tuple(scores))
    head = contracts.Header(run_id="run", purpose=contracts.Purpose.TRAIN, group_index=index, group_id=name)
    data = contracts.encode(contracts.Message(header=head, body=body))
    return ReadyGroup(group_index=index, group_id=name, min_version=0, sources=frozenset(), scored=body, data=data)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the file system to measure")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    batch = [group(index, options.tokens, draw) for index in range(options.rollouts // GROUP)]
    lengths = [len(one.token_ids) for ready in batch for one in ready.scored.group.rollouts]
    outcome = StepOutcome(
        metrics=dict(SHOWN),
        advantages=(0.5,) * len(lengths),
        token_advantages=tuple(np.full(length, 0.5, np.float32) for length in lengths),
        peaks={},
    )
    rows = torch.randn(1024, 1024)
    count = round(1.0 / seconds(lambda: passes(rows, 10)) * 10)
    found: dict[str, list[float]] = {"before": [], "held": [], "step": [], "step_beside": []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        record = StepRecord(Path(folder), keep_rollouts_mib=0, most_lag=UNBOUNDED)
        writer = BackgroundWriter("the record", depth=2)

        def write(step: int) -> None:
            trained = TrainedStep(step, batch, outcome, TIMES, UntrainedGroups(uninformative=0, stale=()))
            record.write(trained, record.line(trained))

        for number in range(1, 2 * options.repeats, 2):
            found["before"].append(seconds(lambda step=number: write(step)))  # type: ignore[misc]
            found["step"].append(seconds(lambda: passes(rows, count)))
            found["held"].append(seconds(lambda step=number + 1: writer.start(partial(write, step))))  # type: ignore[misc]
            found["step_beside"].append(seconds(lambda: passes(rows, count)))
            writer.wait()
    medians = {name: round(statistics.median(times), 5) for name, times in found.items()}
    print(json.dumps({"rollouts": len(lengths), "tokens": sum(lengths), **medians}))


if __name__ == "__main__":
    main()
