"""RUN/base: a model folder that any engine loads; made once, and anew when the run's model is another."""

from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.engine_base import write_engine_base
from tests.extras import needs
from tests.unit.services.trainer.builders import tiny_folder

pytestmark = needs("bitsandbytes", extra="qlora")


def settings(folder, dtype="float32"):
    lora = {"rank": 2, "quantize": "nf4"}
    model = {"path": folder / "model", "dtype": dtype, "lora": lora}
    return TrainerSettings.model_validate({"run_dir": folder, "model": model})


def test_an_engine_base_is_kept_while_valid_and_rewritten_for_another_model_or_dtype(tmp_path):
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
