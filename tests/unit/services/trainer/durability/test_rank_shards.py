"""A checkpoint that two ranks write: it loads whole, and rank 0 learns what became of the other shard."""

import errno
from concurrent.futures import Future
from datetime import timedelta

import pytest
import torch
from torch.distributed import TCPStore

from headrace.inspect.history.weights import weights_sha256
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.durability import rank_shards
from headrace.services.trainer.durability.checkpoint import CheckpointDamagedError, CheckpointStore, load_checkpoint
from headrace.services.trainer.durability.rank_shards import RankShards
from headrace.wire.errors import ContractError, DiskError, WaitTimeoutError
from tests.unit.services.trainer.durability.test_checkpoint import state

WHOLE = {"a": torch.arange(10.0).view(5, 2), "b": torch.arange(3), "one": torch.tensor(7.0)}


def rows(rank):
    """As FSDP2 divides them: what is not divided, or has no rows left, is rank 0's."""
    part = slice(0, 3) if rank == 0 else slice(3, 5)
    return {"a": WHOLE["a"][part]} | ({name: WHOLE[name] for name in ("b", "one")} if rank == 0 else {})


def copied(files):
    ended = Future()
    ended.set_result(files)
    return ended


@pytest.fixture
def ends():
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))
    made = []
    for rank in range(2):
        ranks = Ranks(rank, 2, server)
        ranks.side_store = server.clone()
        made.append(RankShards(ranks))
    yield made


def save(store, first):
    files = {"model": rows(0), "optimizer": {}, "random": {}}
    return store.save(state(1), files, ranks=2, others=lambda: first.gather(store.aside(1), 0.5))


def test_the_shards_of_two_ranks_load_whole_and_none_may_be_missing(tmp_path, ends):
    store = CheckpointStore(tmp_path, keep=1)
    ends[1].write(store.prepare(1), copied({"model": rows(1), "optimizer": {}}))
    path = save(store, ends[0])
    loaded = load_checkpoint(path).weights
    assert loaded.keys() == WHOLE.keys() and all(torch.equal(loaded[name], WHOLE[name]) for name in WHOLE)
    single = CheckpointStore(tmp_path / "single", keep=1).save(
        state(1), {"model": WHOLE, "optimizer": {}, "random": {}}
    )
    assert weights_sha256(sorted(path.glob("model*"))) == weights_sha256([single / "model.safetensors"])
    (path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointDamagedError):
        load_checkpoint(path)


def test_a_rank_that_is_late_or_cannot_write_ends_the_checkpoint_as_rank_0_would(tmp_path, ends, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    store.prepare(1)
    with pytest.raises(WaitTimeoutError, match="rank 1 to write its shard"):
        save(store, ends[0])

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "shard"))

    aside = store.prepare(1)
    with monkeypatch.context() as patched:
        patched.setattr(rank_shards, "write_shards", full)
        ends[1].write(aside, copied({"model": rows(1)}))
    with pytest.raises(DiskError, match="shard: the disk is full"):
        save(store, ends[0])
    ends[0]._store.set(rank_shards._key(store.prepare(1), 1), '0 {"sha256": {}}')
    with pytest.raises(ContractError, match="signature"):
        save(store, ends[0])
    assert not list(tmp_path.iterdir())
