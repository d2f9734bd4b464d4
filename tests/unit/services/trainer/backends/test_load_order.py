"""Which ranks read shards, and when whole models are loaded one after the other."""

from contextlib import contextmanager

import pytest

from headrace.services.trainer.backends import load_order
from headrace.services.trainer.backends.load_order import available_bytes, shards_over, whole_models
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.settings import TrainerSettings
from tests.unit.services.trainer.builders import tiny_folder


def settings(**tables):
    return TrainerSettings.model_validate(tables)


@pytest.mark.parametrize(
    ("tables", "size", "shards"),
    [
        ({}, 1, False),
        ({"trainer": {"ranks": 2}}, 2, True),
        ({"trainer": {"ranks": 2, "backend": "fsdp2"}}, 2, True),
        ({"trainer": {"backend": "fsdp2"}}, 1, False),
        ({"trainer": {"ranks": 2, "backend": "deepspeed"}}, 2, False),
        ({"trainer": {"ranks": 2}, "model": {"lora": {"rank": 4}}}, 2, True),
        ({"trainer": {"ranks": 2}, "model": {"lora": {"rank": 4, "quantize": "nf4"}}}, 2, False),
    ],
)
def test_the_ranks_of_fsdp2_read_shards_but_for_four_bits(tables, size, shards):
    ranks = Ranks(0, size)
    assert shards_over(settings(**tables), ranks) is (ranks if shards else None)


class Beside(Ranks):
    """Four ranks on two machines, of which this is one; no other process is there."""

    def __init__(self):
        super().__init__(0, 4)
        self.beside, self.turns = 2, []

    def agree(self, flag):
        return flag

    @contextmanager
    def in_turn(self, what):
        self.turns.append(what)
        yield


def test_turns_are_taken_when_a_machines_whole_models_would_fill_half_of_its_memory(tmp_path, monkeypatch):
    folder = tiny_folder(tmp_path / "model")
    size = 4 * sum(weight.numel() for weight in load_parameters(folder))
    for available, turns in ((4 * size - 1, ["to load the model"]), (4 * size, [])):
        monkeypatch.setattr(load_order, "available_bytes", lambda available=available: available)
        ranks = Beside()
        with whole_models(ranks, folder, sharded=False):
            pass
        assert ranks.turns == turns, "two of them are beside each other"
        with whole_models(ranks, folder, sharded=True):
            pass
        assert ranks.turns == turns


def load_parameters(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).parameters()


def test_a_container_has_what_its_limit_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(load_order, "_CGROUP", tmp_path)
    whole = available_bytes()
    assert whole > 1 << 20
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert available_bytes() == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes() > 3000
