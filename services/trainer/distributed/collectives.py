"""The ranks of one trainer: the identity of this process, and the few collectives that no backend provides.

Every rank calls every method, in the same order. The rendezvous is a TCP store of rank 0.

Batches are divided over the data-parallel ranks (`data_rank` of `data_size`), weights over all of them. `context_size`
ranks in a row are one data-parallel rank: they have the same rows, and whatever they compute of them is equal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import Store

from headrace.wire.errors import TransientError
from headrace.wire.weights.collective import with_watchdog

if TYPE_CHECKING:
    from headrace.services.trainer.distributed.context import ContextGroup


class Ranks:
    """One process among the ranks of its trainer."""

    def __init__(self, rank: int, size: int, store: Store | None = None) -> None:
        """If `size` is above 1 a process group must exist: use `alone` or `join`."""
        self.rank = rank
        self.size = size
        self.store = store
        """Store of the rendezvous; None for one process alone."""
        self.side_store: Store | None = None
        """The same over another connection, for one thread beside the main one: a wait blocks its connection."""
        self.context: ContextGroup | None = None
        """The ranks that share this one's rows; None: it has rows of its own."""
        self.beside = size
        """Number of ranks on this machine; their numbers are consecutive."""
        self.before_leaving: Callable[[], None] = lambda: None
        """Called when all ranks have reached their end: from then on no rank is reported missing."""

    @classmethod
    def alone(cls) -> Self:
        """One process; no group is needed or made."""
        return cls(0, 1)

    @classmethod
    def join(
        cls, rank: int, size: int, store: Store, *, device: torch.device, timeout_s: float, context: int = 1
    ) -> Self:
        """Makes this process a member of torch's default group; blocks until all are there.

        `context` ranks in a row share their rows (`trainer.cp`).

        No collective of the group (a backend's included) waits longer than `timeout_s`. Raises TransientError when a
        rank does not come in that time.
        """
        kinds = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "cpu:gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        try:
            with with_watchdog():
                dist.init_process_group(
                    kinds, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
                )
            found = cls(rank, size, store)
            # Before the barrier, after which the store may be sealed.
            found.side_store = store.clone()  # type: ignore[attr-defined]
            if context > 1:
                from headrace.services.trainer.distributed.context import ContextGroup

                found.context = ContextGroup(context, kinds=kinds, timeout_s=timeout_s)
            found.barrier()
        except RuntimeError as error:
            raise TransientError(f"rank {rank} found no group of {size} ranks in {timeout_s:.0f} s: {error}") from error
        return found

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, of the same shape; equal in every bit on every rank."""
        if self.size == 1:
            return tensor
        whole = tensor.detach().clone()
        self._call("sum", lambda: dist.all_reduce(whole))
        return whole

    @property
    def context_size(self) -> int:
        """Number of ranks that share their rows; their numbers are consecutive."""
        return 1 if self.context is None else self.context.size

    @property
    def data_size(self) -> int:
        """Number of ranks, or groups of ranks, that have rows of their own."""
        return self.size // self.context_size

    @property
    def data_rank(self) -> int:
        """Which of these this one is."""
        return self.rank // self.context_size

    def sum_data(self, tensor: Tensor) -> Tensor:
        """The sum over the data-parallel ranks, of the same shape; equal in every bit on every rank."""
        return self.sum(tensor if self.rank % self.context_size == 0 else torch.zeros_like(tensor))

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's tensor, in the order of ranks; only their first dimension may differ."""
        if self.size == 1:
            return [tensor]
        tensor = tensor.detach().contiguous()
        mine = torch.tensor([len(tensor)], device=tensor.device)
        lengths = [torch.zeros_like(mine) for _ in range(self.size)]
        self._call("gather", lambda: dist.all_gather(lengths, mine))
        longest = max(int(length) for length in lengths)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        if longest:
            self._call("gather", lambda: dist.all_gather(parts, padded))
        return [part[: int(length)] for part, length in zip(parts, lengths, strict=True)]

    def agree(self, flag: bool) -> bool:
        """Returns whether `flag` is true on any rank; the same answer on all."""
        return flag if self.size == 1 else bool(self.sum(torch.tensor(int(flag))) > 0)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.sum(torch.zeros(1))

    def share_text(self, say: Callable[[], str], what: str) -> str:
        """Broadcasts the string that rank 0's callable returns.

        Raises TransientError naming `what` if that is not done by the deadline.
        """
        mine = say().encode() if self.rank == 0 else b""
        try:
            first, *_ = self.gather(torch.tensor(list(mine), dtype=torch.uint8))
        except TransientError as error:
            raise TransientError(f"waiting for {what}: {error}") from error
        return bytes(first.tolist()).decode()

    @contextmanager
    def in_turn(self, what: str) -> Iterator[None]:
        """Within it this rank is the only one of its machine. Every rank must enter it, outside any other collective.

        Each turn has the deadline of a collective; TransientError names the turn that was waited for.
        """
        mine = self.rank % self.beside
        for turn in range(self.beside):
            if turn == mine:
                yield
            try:
                self.barrier()
            except TransientError as error:
                raise TransientError(f"waiting for turn {turn + 1} of {self.beside} {what}: {error}") from error

    def leave(self) -> None:
        """Returns when all ranks have reached their end. End the process at once then, with `os._exit`.

        Gloo's threads abort a process that tears its groups down while peers leave.
        """
        # Rank 0 may still write for long while the others wait here, so a lost rank counts until the last one arrives.
        # The second barrier keeps the store of the rendezvous alive until no rank queries it any more. The first rank
        # through it exits and closes its connections; the others see an error, by when all have reached their end.
        self.barrier()
        self.before_leaving()
        with suppress(TransientError):
            self.barrier()

    def _call(self, what: str, collective: Callable[[], object]) -> None:
        try:
            collective()
        except RuntimeError as error:
            raise TransientError(f"rank {self.rank}: the {what} over {self.size} ranks failed: {error}") from error
