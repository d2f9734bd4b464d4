"""The ranked pairs are data of the stages reward_model and dpo, and their prompts are the policy's, token for token."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.config.data import DataTable
from headrace.data.prepare import LengthLimits, prepare
from headrace.data.prepare_examples import prepare_examples
from headrace.model.tiny_models import Shape, bpe_tokenizer, write_model
from headrace.services.orchestrator.annotation.votes import VoteStore
from tests.annotation import row

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
LIMITS = LengthLimits(max_prompt_tokens=500, vocab_size=400, seed=0)
CHAT = [{"role": "system", "content": "add"}, {"role": "user", "content": "1+1="}]


def model(folder: Path, *, has_template: bool) -> Path:
    write_model(folder, bpe_tokenizer(iter(["add two numbers"]), vocab_size=300), Shape(layers=1, hidden=8), seed=0)
    if has_template:
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    return folder


@pytest.mark.parametrize("stage", ["reward_model", "dpo"])
@pytest.mark.parametrize(
    ("has_template", "prompts", "table"),
    [
        (True, ["1+1=", "2+2="], {}),
        (True, [CHAT, [{"role": "user", "content": "2+2="}]], {}),
        (True, ["1+1=", "2+2="], {"system": "be kind"}),
        (True, ["1+1=", "2+2="], {"chat_template": "never"}),
        (False, ["1+1=", "2+2="], {}),
    ],
)
def test_both_training_stages_read_annotated_pairs(
    tmp_path: Path, stage: str, has_template: bool, prompts: list[Any], table: dict[str, Any]
) -> None:
    folder = model(tmp_path / "model", has_template=has_template)
    source = tmp_path / "data.jsonl"
    source.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    prepare(DataTable(path=str(source), **table), folder, LIMITS, run_dir)
    policy = pq.read_table(run_dir / "prompts.parquet").to_pylist()
    _roll_out(run_dir, policy)
    _judge(run_dir)

    out = tmp_path / "out"
    out.mkdir()
    pairs = DataTable(path=str(run_dir / "annotations" / "pairs.jsonl"), **table)
    found = prepare_examples(pairs, stage, folder, LIMITS, out)
    assert found.examples == 2
    examples = pq.read_table(out / "examples.parquet").to_pylist()
    assert {tuple(one["prompt_ids"]) for one in examples} == {tuple(one["token_ids"]) for one in policy}


def _roll_out(run_dir: Path, policy: list[dict[str, Any]]) -> None:
    rows = [
        row(1, number, index, text, prompt=one["text"], sample_id=one["sample_id"])
        for number, one in enumerate(policy)
        for index, text in enumerate((f" {number} right", "wrong\n"))
    ]
    (run_dir / "rollouts").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), run_dir / "rollouts" / "step-000001.parquet")


def _judge(run_dir: Path) -> None:
    store = VoteStore(run_dir)
    while (pair := store.turn("ann").pair) is not None:
        store.vote("ann", pair.id, "left" if "right" in pair.left.text else "right")
    store.close()
