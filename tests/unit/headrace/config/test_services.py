"""What each process is told."""

from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.config.schema import Ports
from headrace.config.services import MachineLayout, ProcessSpec, replica_spec, settings_of
from headrace.config.settle import settle


@pytest.mark.parametrize(("quantize", "folder"), [("none", "model"), ("nf4", "run/base")])
def test_engines_merge_adapters_into_the_base_that_the_trainer_computes_with(
    tmp_path: Path, quantize: str, folder: str
) -> None:
    lora = f'[model.lora]\nrank = 4\nquantize = "{quantize}"\n'
    (tmp_path / "run.toml").write_text(f'[data]\npath = "p.jsonl"\n[model]\npath = "model"\n{lora}')
    config = settle(resolve(tmp_path / "run.toml"), tmp_path / "run", goes_on=False).config
    ports = Ports(grpc_port=7001, http_port=7002)
    place = MachineLayout(tmp_path / "run", "unix:///x", {"orchestrator": ports}, stop_token_ids=[1])
    rollout = settings_of(config, replica_spec("rollout", 1), place, ports)
    trainer = settings_of(config, ProcessSpec("trainer", "0", "trainer"), place, ports)
    assert rollout.model.path == tmp_path / folder
    assert trainer.model.path == tmp_path / "model"
