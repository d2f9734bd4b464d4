"""QLoRA in the RL loop: engines merge the adapters into the base that the trainer computes with, rounded to 4 bits."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.e2e.harness import TinyRun
from tests.extras import needs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), needs("bitsandbytes", extra="qlora")]

LORA = ("--model.lora.rank=4", "--model.lora.quantize=nf4", "--trainer.checkpoint_every=1")


@pytest.mark.long
def test_a_run_with_a_base_in_4_bits_publishes_trains_and_goes_on(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "tiny", steps=2, replicas=1)
    try:
        run.start(*LORA)
        run.finish()
        written = (run.run_dir / "base" / "model.safetensors").stat()
        run.start(*LORA, "--run.max_steps=3", "--resume")
        result = run.finish()
    finally:
        run.close()
    assert result["steps"] == 3, result
    run.check()
    steps = run.metrics()
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert all(row["logprob_gap_max"] <= 1e-3 and row["grad_norm"] > 0 for row in steps)
    assert "quarantined" not in run.logs()
    # Resumed on the base that was there.
    again = (run.run_dir / "base" / "model.safetensors").stat()
    assert (again.st_ino, again.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    config = json.loads((run.run_dir / "base" / "config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "float32"
    adapter = load_file(run.run_dir / "export" / "adapter" / "adapter_model.safetensors")
    assert adapter and all(".lora_" in name for name in adapter)
    assert any(float(tensor.abs().max()) > 0 for name, tensor in adapter.items() if ".lora_B." in name)
    newest = sorted((run.run_dir / "checkpoints").glob("*"))[-1]
    assert all(".lora_" in name for name in load_file(newest / "model.safetensors"))
