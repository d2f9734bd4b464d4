import json

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from transformers import AutoModelForCausalLM

from services.trainer.settings import SftSettings
from services.trainer.stages.sft import read_examples, shuffled, train_supervised
from tests.unit.services.trainer.builders import tiny_folder
from wire.errors import DataError


def write_data(path, rows):
    kind = pa.list_(pa.int32())
    columns = {"prompt_ids": [row[0] for row in rows], "completion_ids": [row[1] for row in rows]}
    parquet.write_table(pa.table(columns, schema=pa.schema([("prompt_ids", kind), ("completion_ids", kind)])), path)
    return path


def settings(tmp_path, **changes):
    rows = [([5, 6 + n % 3], [9 + n % 3, 10, 1][: 2 + n % 2]) for n in range(12)]
    data = write_data(tmp_path / "sft.parquet", rows)
    if not (tmp_path / "model").exists():
        tiny_folder(tmp_path / "model")
    table = {"data": data, "output": tmp_path / "out", "steps": 25, "batch_size": 8, "learning_rate": 1e-2, **changes}
    return SftSettings.model_validate({"model": {"path": tmp_path / "model"}, "sft": table})


def test_it_lowers_the_loss_and_writes_a_model_that_loads(tmp_path):
    chosen = settings(tmp_path)
    losses = train_supervised(chosen)
    assert losses[-1] < 0.5 * losses[0]
    model = AutoModelForCausalLM.from_pretrained(chosen.sft.output)
    ids = torch.tensor([[5, 6, 9, 10]])
    assert model(ids).logits[0, 1:3].argmax(-1).tolist() == [9, 10]
    assert json.loads((chosen.sft.output / "sft.json").read_text())["losses"] == losses


def test_it_stops_where_the_loss_is_low_enough(tmp_path):
    all_steps = train_supervised(settings(tmp_path, steps=25))
    target = sum(all_steps[8:16]) / 8
    assert train_supervised(settings(tmp_path, steps=25, target_loss=target)) == all_steps[:16]


def test_the_loss_is_that_of_completions_only(tmp_path):
    chosen = settings(tmp_path, steps=1, batch_size=12)
    (loss,) = train_supervised(chosen)
    model = AutoModelForCausalLM.from_pretrained(chosen.model.path, dtype=torch.float32)
    terms = []
    for example in read_examples(chosen.sft.data):
        ids = torch.tensor([*example.prompt_ids.tolist(), *example.completion_ids.tolist()])[None]
        logprobs = torch.log_softmax(model(ids).logits[0, 1:-1], -1)
        terms.append(-logprobs.gather(1, ids[0, 2:, None]).squeeze(1))
    assert loss == pytest.approx(torch.cat(terms).mean().item(), rel=1e-5)


def test_two_runs_end_in_the_same_bits(tmp_path):
    found = []
    for _ in range(2):
        chosen = settings(tmp_path, steps=5)
        train_supervised(chosen)
        found.append(json.loads((chosen.sft.output / "sft.json").read_text())["weights_sha256"])
    assert found[0] == found[1]


def test_an_epoch_sees_every_row_once_in_an_order_of_its_own():
    rows = shuffled(9, seed=3)
    first, second = [next(rows) for _ in range(9)], [next(rows) for _ in range(9)]
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second


def test_bad_data_names_file_row_and_column(tmp_path):
    with pytest.raises(DataError, match="row 1: completion_ids"):
        read_examples(write_data(tmp_path / "bad.parquet", [([1], [2]), ([1], [])]))
    with pytest.raises(DataError, match="no rows"):
        read_examples(write_data(tmp_path / "none.parquet", []))
    with pytest.raises(DataError, match=r"missing\.parquet"):
        read_examples(tmp_path / "missing.parquet")
    parquet.write_table(pa.table({"text": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet"):
        read_examples(tmp_path / "other.parquet")
