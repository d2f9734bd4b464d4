"""One process alone needs no group, and a command line names a place."""

import pytest
import torch

from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.launch import assemble_ranks
from headrace.services.trainer.distributed.topology import RankTopology, rank_device, read_place
from headrace.wire.errors import TransientError


def test_alone_every_collective_gives_back_what_it_got():
    ranks = Ranks.alone()
    tensor = torch.arange(3)
    assert (ranks.rank, ranks.size) == (0, 1)
    assert torch.equal(ranks.sum(tensor), tensor) and torch.equal(ranks.gather(tensor)[0], tensor)
    assert ranks.agree(True) and not ranks.agree(False)
    ranks.barrier()
    assert not torch.distributed.is_initialized()


def test_one_rank_starts_nothing():
    assert assemble_ranks(1, RankTopology(), device=torch.device("cpu"), timeout_s=1).size == 1


def test_a_rank_at_its_end_is_missed_until_the_last_one_has_come(monkeypatch):
    ranks, happened = Ranks.alone(), []
    monkeypatch.setattr(ranks, "barrier", lambda: happened.append("all are there"))
    ranks.before_leaving = lambda: happened.append("nobody is missed")
    ranks.leave()
    assert happened == ["all are there", "nobody is missed", "all are there"]


def test_who_is_left_behind_at_the_very_end_has_lost_nothing(monkeypatch):
    ranks, left = Ranks.alone(), [False]

    def barrier():
        if left[0]:
            raise TransientError("Connection reset by peer")

    monkeypatch.setattr(ranks, "barrier", barrier)
    ranks.before_leaving = lambda: left.__setitem__(0, True)
    ranks.leave()
    assert left[0]
    with pytest.raises(TransientError):
        ranks.leave()


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


def test_alone_nobody_is_waited_for_and_everything_is_told():
    ranks = Ranks.alone()
    with ranks.in_turn("to load the model"):
        pass
    assert ranks.share_text(lambda: "größer", "rank 0 to look") == "größer"
