"""Lists of ids, one for each token of a completion, and the file of a run in which those of a group lie.

They are too large for a stream and for the journal: an entry names the file, its size and its digest.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace.wire.contracts.checks import TokenIds, TokenMask
from headrace.wire.errors import ContractError

_NAME = re.compile(r"\d{9,19}-\d+-[0-9a-f]{16}\.ids")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdLists:
    """For each token of a completion a list of ids, in compressed rows: token t has the next counts[t] of `ids`.

    Three tokens, the second of which the policy did not sample:

    >>> lists = IdLists(counts=np.array([2, 0, 1], np.int32), ids=np.array([4, 9, 7], np.int32))
    >>> lists.check("g12/0", np.array([9, 5, 7], np.int32), np.array([True, False, True]))
    """

    counts: TokenIds
    """int32 [completion]"""
    ids: TokenIds
    """int32 [sum of counts], ascending within a token"""

    def __post_init__(self) -> None:
        for values in (self.counts, self.ids):
            if values.dtype != np.int32 or values.ndim != 1 or (len(values) and values.min() < 0):
                raise ContractError("bad_ids", "counts and ids of lists must be int32 [n], 0 or more")
        if int(self.counts.sum(dtype=np.int64)) != len(self.ids):
            raise ContractError("length_mismatch", f"lists of {self.counts.sum()} ids, {len(self.ids)} are there")
        falls = np.flatnonzero(self.ids[1:] <= self.ids[:-1]) + 1
        if not np.isin(falls, self._ends).all():
            raise ContractError("bad_ids", "the ids of a token are not ascending")

    @classmethod
    def of(cls, lists: Sequence[TokenIds]) -> Self:
        """From the ascending ids of each token, int32 [ids] each."""
        counts = np.array([len(ids) for ids in lists], np.int32)
        return cls(counts=counts, ids=np.concatenate([np.empty(0, np.int32), *lists]))

    @property
    def _ends(self) -> NDArray[np.int64]:
        return self.counts.cumsum(dtype=np.int64)

    def check(self, name: str, token_ids: TokenIds, mask: TokenMask) -> None:
        """Raises ContractError unless exactly the tokens in `mask`, bool [completion], have a list with their own id.

        So is a column found that belongs to another completion, or is shifted by a token.
        """
        if len(self.counts) != len(token_ids) or ((self.counts > 0) != mask).any():
            raise ContractError("bad_ids", f"{name}: ids are kept for other tokens than those that the policy sampled")
        places = np.flatnonzero(self.ids == np.repeat(token_ids, self.counts))
        found = np.zeros(len(token_ids), np.bool_)
        found[np.searchsorted(self._ends, places, side="right")] = True
        if (found != mask).any():
            at = int(np.flatnonzero(found != mask)[0])
            raise ContractError(
                "bad_ids", f"{name}: token {at} (id {token_ids[at]}) is not among the ids that it was drawn from"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """A file of the run with a column of one group. Its name begins with the group's index and attempt."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        # The name comes over the wire: it leads to no other folder.
        if not _NAME.fullmatch(self.name) or not _DIGEST.fullmatch(self.sha256):
            raise ContractError("bad_file", f"{self.name[:80]!r} is no file of a group's ids")
