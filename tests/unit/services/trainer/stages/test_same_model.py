"""A trainer that is started again refuses another model than that of the run's first start, before it loads one."""

import pytest
import torch

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import load_learner
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import as_json, read_model_files
from tests.unit.services.trainer.builders import tiny_folder

CPU = torch.device("cpu")
LORA = {"rank": 2, "alpha": 4, "targets": ["q_proj"]}


@pytest.mark.parametrize(
    ("lora", "algorithm", "refused"), [({}, {}, False), (LORA, {}, True), ({}, {"kl_coef": 0.1}, True)]
)
def test_changed_weights_are_refused_where_they_are_read_again(tmp_path, lora, algorithm, refused):
    model = tiny_folder(tmp_path / "model")
    values = {"model": {"path": model, "lora": lora}, "algorithm": algorithm, "run_dir": tmp_path / "run"}
    settings = TrainerSettings.model_validate(values)
    run, weights = RunPaths(tmp_path / "run"), model / "model.safetensors"
    run.config.mkdir(parents=True)
    run.model_files.write_text(as_json(read_model_files(model)))
    load_learner(settings, Ranks.alone(), CPU)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\7")
    if refused:
        with pytest.raises(ConfigError, match=r"model\.safetensors has changed"):
            load_learner(settings, Ranks.alone(), CPU)
    else:
        load_learner(settings, Ranks.alone(), CPU)
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json was not there"):
        load_learner(settings, Ranks.alone(), CPU)
