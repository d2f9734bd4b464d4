"""ZeRO goes on from the weights of a checkpoint whose moments it has no use for."""

import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import save_file

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.optimizers import OPTIMIZERS, OptimizerOptions
from tests.extras import needs
from tests.integration.trainer.backends import work
from tests.variants import keep

pytestmark = [
    pytest.mark.timeout(200),
    needs("deepspeed", extra="deepspeed"),
    needs("bitsandbytes", extra="qlora"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights, and each optimizer's state beside them."""
    made = tmp_path_factory.mktemp("checkpoints")
    for name in OPTIMIZERS:
        backend = SingleDevice(work.policy(), options=work.options("single", optimizer=OptimizerOptions(name=name)))
        for _ in range(3):
            work.one_step(backend)
        save_file(
            {key: value.clone() for key, value in backend.optimizer_tensors().items()}, made / f"{name}.safetensors"
        )
    save_file({key: value.clone() for key, value in backend.whole_weights()}, made / "weights.safetensors")
    return made


@pytest.mark.long
@pytest.mark.parametrize("stage", keep({3}, [2, 3]))
def test_moments_of_another_optimizer_are_dropped_and_the_first_step_is_a_fresh_one(folder, stage):
    command = [sys.executable, "-m", "tests.integration.trainer.zero_resume", str(folder), str(stage)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    found = json.loads((folder / f"zero{stage}.json").read_text())
    assert {name: one["dropped"] for name, one in found.items()} == {
        "adamw": [],
        "adamw_8bit": ["adamw_8bit"],
        "muon": ["muon"],
        "none": [],
    }
    assert found["muon"]["seen"] == found["adamw_8bit"]["seen"] == found["none"]["seen"] != found["adamw"]["seen"]
