"""The process that prepares the data leaves torch out, and writes the rows that a process with torch writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import torch

from headrace.config.data import DataTable
from headrace.data.prepare import LengthLimits, prepare
from headrace.model.tiny_models import Shape, bpe_tokenizer, write_model

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
CONFIG = """
[run]
id = "apart"
[model]
path = "{model}"
[data]
path = "{data}"
eval_size = 4
"""
PROCESS = """
import atexit, runpy, sys
atexit.register(lambda: print("torch._C" in sys.modules, "transformers" in sys.modules))
runpy.run_module("headrace.data", run_name="__main__", alter_sys=True)
"""


def test_data_preparation_gives_the_same_result_without_torch(tmp_path: Path) -> None:
    model, with_torch = tmp_path / "model", tmp_path / "with torch"
    tokenizer = bpe_tokenizer(iter(["user: what is 12 + 34?"]), vocab_size=300)
    write_model(model, tokenizer, Shape(layers=1, hidden=8, context=512), seed=0)
    file = model / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    data = tmp_path / "p.jsonl"
    rows = [{"prompt": f"what is {n} + 1?", "answer": str(n + 1)} for n in range(20)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.toml").write_text(CONFIG.format(model=model, data=data))
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROCESS, "--config", tmp_path / "run.toml", "--out", tmp_path],
        env={**os.environ, "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split() == ["False", "True"]

    assert torch.__version__, "loaded here"
    with_torch.mkdir()
    limits = LengthLimits(max_prompt_tokens=100, vocab_size=1000, seed=0)
    prepare(DataTable(path=str(data), eval_size=4), model, limits, with_torch)
    for name in ("prompts.parquet", "eval.parquet"):
        assert pq.read_table(tmp_path / name).equals(pq.read_table(with_torch / name)), name
