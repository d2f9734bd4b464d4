"""One process alone needs no group, and a command line names a place."""

import pytest
import torch

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.topology import RankTopology, rank_device, read_place
from headrace.wire.errors import TransientError


def test_a_rank_at_its_end_is_missed_until_the_last_one_has_come(monkeypatch):
    ranks, happened = Ranks.alone(), []
    monkeypatch.setattr(ranks, "barrier", lambda: happened.append("all are there"))
    ranks.before_leaving = lambda: happened.append("nobody is missed")
    ranks.leave()
    assert happened == ["all are there", "nobody is missed", "all are there"]


def test_a_place_is_read_as_it_was_written_beside_other_arguments():
    place = RankTopology(rank=2, ranks=3, port=4711)
    assert read_place(["--stage", "sft", "--config", "x.json", *place.arguments()]) == place
    assert read_place(["--config", "x.json"]) == RankTopology()


def test_every_rank_has_its_own_gpu_and_all_share_the_cpu():
    assert [str(rank_device("cpu", rank)) for rank in range(2)] == ["cpu", "cpu"]
    assert [str(rank_device("cuda:2", rank)) for rank in range(2)] == ["cuda:2", "cuda:3"]
    assert str(rank_device("cuda", 1)) == "cuda:1"


def test_a_rank_that_waits_for_another_says_what_for(monkeypatch):
    ranks = Ranks(1, 4)
    ranks.beside = 2

    def lost(*_args, **_options):
        raise RuntimeError("Timed out")

    monkeypatch.setattr(torch.distributed, "all_reduce", lost)
    monkeypatch.setattr(torch.distributed, "all_gather", lost)
    with pytest.raises(TransientError, match=r"waiting for turn 1 of 2 to load the model: rank 1: the sum over 4"):
        ranks.in_turn("to load the model").__enter__()
    with pytest.raises(TransientError, match="waiting for rank 0 to look: rank 1: the gather over 4 ranks failed"):
        ranks.share_text(lambda: "", "rank 0 to look")
