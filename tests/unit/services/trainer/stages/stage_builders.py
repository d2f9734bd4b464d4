"""Small stages: a model folder, examples or pairs as parquet, settings, and one run to the end."""

import json

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import StopSignal
from headrace.services.trainer.stages.offline.examples import Example, PreferencePair
from headrace.services.trainer.stages.offline.run import OfflineRun
from tests.unit.services.trainer.builders import VOCAB, tiny_folder

IDS = pa.list_(pa.int32())


def write_examples(path, rows):
    """Rows of (prompt, completion) or (prompt, completion, trained)."""
    columns = {"prompt_ids": pa.array([row[0] for row in rows], IDS)}
    columns["completion_ids"] = pa.array([row[1] for row in rows], IDS)
    if rows and len(rows[0]) > 2:
        columns["trained"] = pa.array([row[2] for row in rows], pa.list_(pa.bool_()))
    parquet.write_table(pa.table(columns), path)


def write_pairs(path, rows):
    """Rows of (prompt, chosen, rejected, margin)."""
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    columns = {name: pa.array([row[place] for row in rows], IDS) for place, name in enumerate(names)}
    columns["margin"] = pa.array([row[3] for row in rows], pa.float32())
    parquet.write_table(pa.table(columns), path)


def example(draw, *, longest=9, turns=False):
    """A random example; with `turns` some tokens of its completion are not trained."""
    prompt, completion = (
        draw.integers(2, VOCAB, draw.integers(1, 5)),
        draw.integers(2, VOCAB, draw.integers(1, longest)),
    )
    trained = draw.random(len(completion)) < 0.6 if turns else np.ones(len(completion), bool)
    trained[-1] = True
    mask = np.concatenate([np.zeros(len(prompt), bool), trained])
    return Example(np.concatenate([prompt, completion]).astype(np.int32), mask)


def examples(count, seed=0, **kwargs):
    draw = np.random.default_rng(seed)
    return [example(draw, **kwargs) for _ in range(count)]


def pairs(count, seed=0):
    """Random pairs, each of one prompt."""
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prompt = draw.integers(2, VOCAB, draw.integers(1, 5)).astype(np.int32)
        sides = []
        for _ in range(2):
            completion = draw.integers(2, VOCAB, draw.integers(1, 9)).astype(np.int32)
            mask = np.arange(len(prompt) + len(completion)) >= len(prompt)
            sides.append(Example(np.concatenate([prompt, completion]), mask))
        made.append(PreferencePair(*sides, margin=float(draw.random())))
    return made


def stage_settings(run_dir, stage, *, seed=0, trainer=None, **table):
    """Settings over `run_dir`, whose model is made beside it."""
    model = run_dir.parent / "model"
    if not model.exists():
        tiny_folder(model)
    run_dir.mkdir(exist_ok=True)
    values = {"run": {"stage": stage, "seed": seed}, "model": {"path": model}, "run_dir": run_dir}
    return StageSettings.model_validate(values | {"trainer": trainer or {}, stage: table})


def run(settings, stop=None):
    """One life on one rank."""
    return OfflineRun(settings, Ranks.alone(), torch.device("cpu"), stop or StopSignal()).run()


class StopAfter(StopSignal):
    """Asks to stop at the look before step `step`."""

    def __init__(self, step):
        super().__init__()
        self._left = step

    def asked(self):
        self._left -= 1
        return self._left < 0


def metrics(settings, name="metrics"):
    return [json.loads(line) for line in (settings.run_dir / f"{name}.jsonl").read_text().splitlines()]


def exported(settings):
    """Digest of the exported weights."""
    events = [json.loads(line) for path in settings.run_dir.glob("events/*") for line in path.read_text().splitlines()]
    return [event for event in events if event["event"] == "exported"][-1]["weights_sha256"]
