"""How every group of a run ended, in a few bytes a group. Pure."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.wire.contracts import group_id

_BLOCK = 4096
"""Groups whose fates lie together: an index far from all others, which only a damaged message has, costs one block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFate:
    """How a group ended: trained by a step, or dropped for a reason (then the step is 0)."""

    group_index: int
    group_id: str
    step: int = 0
    reason: str = ""


class FateTable:
    """Fates by index. Of a million groups it holds 8 MB, where the fates themselves have 250.

    A group has 8 bytes: its step, or the number of its reason. Its id follows from its index, but for those that do not
    follow from the first one's run.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, array[int]] = {}
        self._reasons: list[str] = []
        self._run_id: str | None = None
        self._other_ids: dict[int, str] = {}

    def __contains__(self, index: int) -> bool:
        return self._at(index) != 0

    def add(self, fate: GroupFate) -> None:
        """Records the fate of a group that has none."""
        index = fate.group_index
        block = self._blocks.get(index // _BLOCK)
        if block is None:
            block = self._blocks[index // _BLOCK] = array("q", bytes(8 * _BLOCK))
        block[index % _BLOCK] = fate.step or -1 - self._number(fate.reason)
        if self._run_id is None:
            self._run_id = fate.group_id.rpartition("/")[0]
        if fate.group_id != group_id(self._run_id, index):
            self._other_ids[index] = fate.group_id

    def is_over(self, index: int, step: int) -> bool:
        """Whether a group was dropped, or trained by a step up to `step`."""
        return index in self and self._at(index) <= step

    def since(self, first: int) -> Iterator[GroupFate]:
        """Fates of the groups from an index on, by index."""
        for number in sorted(number for number in self._blocks if number >= first // _BLOCK):
            block, start = self._blocks[number], number * _BLOCK
            for offset in range(max(first - start, 0), _BLOCK):
                if block[offset]:
                    yield self._fate(start + offset)

    def _fate(self, index: int) -> GroupFate:
        assert self._run_id is not None
        held = self._at(index)
        name = self._other_ids.get(index, group_id(self._run_id, index))
        if held > 0:
            return GroupFate(group_index=index, group_id=name, step=held)
        return GroupFate(group_index=index, group_id=name, reason=self._reasons[-1 - held])

    def _at(self, index: int) -> int:
        block = self._blocks.get(index // _BLOCK)
        return block[index % _BLOCK] if block is not None else 0

    def _number(self, reason: str) -> int:
        if reason not in self._reasons:
            self._reasons.append(reason)
        return self._reasons.index(reason)
