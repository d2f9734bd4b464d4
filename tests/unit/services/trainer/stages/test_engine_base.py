"""RUN/base: a model folder that any engine loads; made once, and anew when the run's model is another."""

import json

from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.engine_base import write_engine_base
from tests.extras import needs
from tests.unit.services.trainer.builders import tiny_folder

pytestmark = needs("bitsandbytes", extra="qlora")


def settings(folder, dtype="float32"):
    lora = {"rank": 2, "quantize": "nf4"}
    model = {"path": folder / "model", "dtype": dtype, "lora": lora}
    return TrainerSettings.model_validate({"run_dir": folder, "model": model})


def test_it_is_a_plain_model_folder_with_the_models_tokenizer(tmp_path):
    tiny_folder(tmp_path / "model", hidden=32)
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    base = write_engine_base(settings(tmp_path, "bfloat16"))
    config = json.loads((base / "config.json").read_text())
    assert config["dtype"] == "bfloat16" and config["architectures"] == ["Qwen3ForCausalLM"]
    assert "quantization_config" not in config and (base / "tokenizer.json").read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "model"]


def test_it_is_kept_while_whole_and_written_anew_for_another_model_or_dtype(tmp_path):
    def stamp():
        found = (write_engine_base(settings(tmp_path)) / "model.safetensors").stat()
        return found.st_ino, found.st_mtime_ns

    tiny_folder(tmp_path / "model", hidden=32)
    first = stamp()
    assert stamp() == first
    (tmp_path / "base" / "made_from.json").unlink()
    second = stamp()
    assert second != first
    tiny_folder(tmp_path / "model", hidden=32, seed=1)
    third = stamp()
    assert third != second
    write_engine_base(settings(tmp_path, "bfloat16"))
    assert stamp() != third
