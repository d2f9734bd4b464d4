"""Packs several examples into one row of a forward pass: fewer rows, no padding, the same losses.

Positions begin again at 0 for every example. Most of transformers' attentions take a position that does not follow the
one before it for the border of a sequence; `packing_check` checks on the loaded model that nothing crosses it. Pure.
"""

from collections.abc import Sequence


def pack(lengths: Sequence[int], *, capacity: int) -> list[list[int]]:
    """Indices of the examples of each row; a row has at most `capacity` tokens (a longer example has a row of its own).

    First fit, longest examples first: at most 22 % more rows than the best packing. Depends on the lengths and their
    order only. Raises ValueError for a capacity below 1.
    """
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}, must be at least 1")
    rows: list[list[int]] = []
    room = _Room(len(lengths))
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        row = room.first(min(lengths[number], capacity))
        if row is None:
            row = len(rows)
            rows.append([])
            room.set(row, capacity)
        rows[row].append(number)
        room.set(row, max(room.of(row) - lengths[number], 0))
    return rows


class _Room:
    """A tree of maxima over the rows' free tokens: finds the first row with enough room in logarithmic time."""

    def __init__(self, rows: int) -> None:
        self._leaves = 1 << max(rows - 1, 0).bit_length()
        self._most = [-1] * (2 * self._leaves)

    def of(self, row: int) -> int:
        return self._most[self._leaves + row]

    def set(self, row: int, tokens: int) -> None:
        node = self._leaves + row
        self._most[node] = tokens
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])

    def first(self, tokens: int) -> int | None:
        if self._most[1] < tokens:
            return None
        node = 1
        while node < self._leaves:
            node = 2 * node if self._most[2 * node] >= tokens else 2 * node + 1
        return node - self._leaves
