import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.export import ExportSettings
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.export.checkpoint_export import export_checkpoint
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.loading import load_policy
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.builders import tiny_folder

ADAPTERS = {"rank": 4, "alpha": 8, "targets": ["q_proj", "v_proj"]}


def trained(tmp_path, *, lora=None, steps=(3, 6)):
    """A run directory with checkpoints of a policy that has moved; returns its backend as of the last."""
    source = tiny_folder(tmp_path / "model")
    table = LoraTable.model_validate(lora or {})
    backend = SingleDevice(load_policy(source, device="cpu", forward_dtype=torch.float32, lora=table))
    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=2)
    for step in steps:
        with torch.no_grad():
            for _, weight in backend.module.named_weights():
                weight += 0.01 * step
        state = CheckpointState(step=step, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest="")
        store.save(state, {"model": dict(backend.whole_weights()), "optimizer": {}, "random": {}})
    return backend


def settings(tmp_path, *, lora=None, **export):
    return ExportSettings.model_validate(
        {
            "model": {"path": str(tmp_path / "model"), "lora": lora or {}},
            "run_dir": str(tmp_path / "run"),
            "export": export,
        }
    )


@pytest.mark.parametrize("lora", [None, ADAPTERS])
def test_the_newest_checkpoint_is_exported_as_the_trainer_would(tmp_path, lora):
    backend = trained(tmp_path, lora=lora)
    digest = export_model(backend, tmp_path / "model", tmp_path / "export", dtype=torch.float32)
    found = export_checkpoint(settings(tmp_path, lora=lora))
    assert (found.step, found.weights_sha256) == (6, digest)
    folder = tmp_path / "run" / "exports" / "step-000006"
    assert found.path == str(folder)
    mine, theirs = load_file(folder / "model.safetensors"), load_file(tmp_path / "export" / "model.safetensors")
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert (folder / "adapter").is_dir() == (lora is not None)
    AutoModelForCausalLM.from_pretrained(folder)


def test_a_step_can_be_chosen_and_a_damaged_newest_one_is_passed_over(tmp_path):
    trained(tmp_path)
    assert export_checkpoint(settings(tmp_path, step=3, target=tmp_path / "three")).step == 3
    weights = tmp_path / "run" / "checkpoints" / "step-000006" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert export_checkpoint(settings(tmp_path)).step == 3


def test_exporting_a_missing_or_foreign_checkpoint_is_rejected(tmp_path):
    trained(tmp_path)
    with pytest.raises(ConfigError, match=r"no checkpoint of step 4 \(there are: 3, 6\)"):
        export_checkpoint(settings(tmp_path, step=4))
    with pytest.raises(ConfigError, match="is of another model"):
        export_checkpoint(settings(tmp_path, lora=ADAPTERS))
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="no whole checkpoint yet"):
        export_checkpoint(settings(tmp_path))
