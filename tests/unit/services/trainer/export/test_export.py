import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.loading import load_policy
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import as_json, read_model_files
from headrace.wire.weights import weights_sha256
from tests.unit.services.trainer.builders import tiny_folder


def alone(policy):
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_exported_folder_loads_and_generates(tmp_path, tied, dtype):
    source = tiny_folder(tmp_path / "model", tied=tied)
    (source / "tokenizer.json").write_text("{}")
    policy = load_policy(source, device="cpu", forward_dtype=torch.float32)
    with torch.no_grad():
        for _, weight in policy.named_weights():
            weight += 0.01
    digest = export_model(alone(policy), source, tmp_path / "export", dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    assert model.dtype == dtype
    assert weights_sha256(model.named_parameters()) == digest
    assert ("lm_head.weight" in load_file(tmp_path / "export" / "model.safetensors")) != tied
    out = model.generate(torch.tensor([[3, 4, 5]]), max_new_tokens=4, do_sample=False, min_new_tokens=4)
    assert out.shape == (1, 7)
    assert (tmp_path / "export" / "tokenizer.json").read_text() == "{}"
    assert next(policy.named_weights())[1].dtype == torch.float32


def test_a_tokenizer_that_went_during_training_is_missed_and_the_older_export_stays(tmp_path):
    source, run = tiny_folder(tmp_path / "model"), RunPaths(tmp_path / "run")
    (source / "tokenizer.json").write_text("{}")
    run.config.mkdir(parents=True)
    run.model_files.write_text(as_json(read_model_files(source)))
    backend = alone(load_policy(source, device="cpu", forward_dtype=torch.float32))
    export_model(backend, source, run.export, dtype=torch.float32, run_dir=run.path)
    (source / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"model/tokenizer.json is gone"):
        export_model(backend, source, run.export, dtype=torch.float32, run_dir=run.path)
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"model/tokenizer.json is gone"):
        export_model(backend, source, run.export, dtype=torch.float32, run_dir=run.path)
    assert (run.export / "tokenizer.json").is_file()
