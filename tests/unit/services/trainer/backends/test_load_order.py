"""Which ranks read shards, and when whole models are loaded one after the other."""

import pytest

from headrace.services.trainer.backends.load_order import shards_over
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.settings import TrainerSettings


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
