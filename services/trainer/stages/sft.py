"""The supervised stage: next-token loss on completions only, from a parquet of token ids to a Hugging Face folder."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pyarrow import ArrowException, parquet

from services.trainer.algorithms.aggregation import StepCounts, aggregate
from services.trainer.algorithms.batching import micro_batches
from services.trainer.assembly import TrainRollout, micro_batch
from services.trainer.backends.single import SingleDevice
from services.trainer.export import export_model
from services.trainer.loading import load_policy
from services.trainer.schedule import learning_rate
from services.trainer.settings import SftSettings, SftTable
from services.trainer.step import score_tokens
from wire.errors import DataError
from wire.telemetry import get_logger

_LOG_EVERY = 20
_SMOOTH = 8
"""Steps over which the loss is averaged before it is held against `sft.target_loss`."""
log = get_logger("trainer.sft")


def train_supervised(settings: SftSettings) -> list[float]:
    """Trains `sft.steps` steps, or to `sft.target_loss`; writes `sft.output` and returns the losses.

    A function of data and seed. Raises DataError for bad data, ConfigError for a bad model folder.
    """
    table = settings.sft
    torch.set_num_threads(settings.run.threads)
    torch.manual_seed(settings.run.seed)
    examples = read_examples(table.data)
    dtype = getattr(torch, settings.model.dtype)
    policy = load_policy(settings.model.path, device=settings.run.device, forward_dtype=dtype)
    backend = SingleDevice(policy, betas=table.betas, eps=table.eps, weight_decay=table.weight_decay)
    order = shuffled(len(examples), settings.run.seed)
    losses = []
    begin = time.monotonic()
    for step in range(1, table.steps + 1):
        rows = [examples[next(order)] for _ in range(min(table.batch_size, len(examples)))]
        losses.append(supervised_step(backend, rows, table, step))
        reached = table.target_loss > 0 and float(np.mean(losses[-_SMOOTH:])) <= table.target_loss
        if step % _LOG_EVERY == 0 or step == table.steps or reached:
            log.info("sft_step", step=step, loss=losses[-1], seconds=round(time.monotonic() - begin, 3))
        if reached:
            break
    digest = export_model(backend, settings.model.path, table.output, dtype=dtype)
    (table.output / "sft.json").write_text(json.dumps({"losses": losses, "weights_sha256": digest}))
    log.info("sft_done", path=str(table.output), weights_sha256=digest)
    return losses


def supervised_step(backend: SingleDevice, rows: list[TrainRollout], table: SftTable, step: int) -> float:
    """One optimizer step on the mean negative logprob of the rows' completion tokens; returns that loss."""
    tokens = sum(len(row.completion_ids) for row in rows)
    counts = StepCounts(tokens=tokens, rollouts=len(rows), norm_length=1)
    total = 0.0
    for part in micro_batches(
        [row.row_tokens for row in rows],
        token_budget=table.micro_batch_tokens,
        overhead_tokens=backend.overhead_tokens,
    ):
        micro = micro_batch([rows[number] for number in part], backend.device)
        scores = score_tokens(backend, micro, chunk=table.logprob_chunk)
        loss = aggregate(-scores.logprobs, micro.lengths, mode="token-mean", counts=counts)
        backend.backward(loss)
        total += float(loss.detach())
    rate = learning_rate(
        step,
        peak=table.learning_rate,
        warmup_steps=table.warmup_steps,
        max_steps=table.steps,
        schedule=table.schedule,
    )
    backend.apply(learning_rate=rate, grad_clip=table.grad_clip)
    return total


def read_examples(path: Path) -> list[TrainRollout]:
    """All rows of the parquet; raises DataError naming file, row and column."""
    try:
        columns = parquet.read_table(path, columns=["prompt_ids", "completion_ids"]).to_pydict()
    except (OSError, ArrowException) as error:
        raise DataError(f"sft.data {path}: {error}") from error
    pairs = zip(columns["prompt_ids"], columns["completion_ids"], strict=True)
    examples = [_example(path, row, prompt, completion) for row, (prompt, completion) in enumerate(pairs)]
    if not examples:
        raise DataError(f"sft.data {path} has no rows")
    return examples


def shuffled(count: int, seed: int) -> Iterator[int]:
    """Row numbers without end: all of them in a new order each epoch."""
    draw = random.Random(seed)
    while True:
        rows = list(range(count))
        draw.shuffle(rows)
        yield from rows


def _example(path: Path, row: int, prompt: list[int] | None, completion: list[int] | None) -> TrainRollout:
    for name, ids in (("prompt_ids", prompt), ("completion_ids", completion)):
        if not ids:
            raise DataError(f"sft.data {path}: row {row}: {name} has no tokens")
    tokens: NDArray[np.int32] = np.array(completion, dtype=np.int32)
    return TrainRollout(
        prompt_ids=np.array(prompt, dtype=np.int32),
        completion_ids=tokens,
        behaviour_logprobs=np.zeros(len(tokens), dtype=np.float32),
        current=np.zeros(len(tokens), dtype=np.bool_),
        temperature=1.0,
    )
