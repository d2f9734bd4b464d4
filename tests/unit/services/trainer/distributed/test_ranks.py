"""One process alone needs no group, and a command line names a place."""

from headrace.services.trainer.distributed.topology import RankTopology, rank_device, read_place


def test_a_place_is_read_back_from_a_command_line_with_other_arguments():
    place = RankTopology(rank=2, ranks=3, port=4711)
    assert read_place(["--stage", "sft", "--config", "x.json", *place.arguments()]) == place
    assert read_place(["--config", "x.json"]) == RankTopology()


def test_every_rank_has_its_own_gpu_and_all_share_the_cpu():
    assert [str(rank_device("cpu", rank)) for rank in range(2)] == ["cpu", "cpu"]
    assert [str(rank_device("cuda:2", rank)) for rank in range(2)] == ["cuda:2", "cuda:3"]
    assert str(rank_device("cuda", 1)) == "cuda:1"
