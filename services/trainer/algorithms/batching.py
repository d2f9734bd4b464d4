"""Micro-batches without padding work: rows sorted by length, cut where the padding would cost the most."""

from collections.abc import Sequence


def micro_batches(lengths: Sequence[int], *, token_budget: int, overhead_tokens: int = 32) -> list[list[int]]:
    """Partitions rows into micro-batches, longest rows first; returns row numbers.

    Rows times the longest row of a micro-batch stay within `token_budget` (a row longer than that is alone). Among the
    cuts of the sorted rows it takes the one of least padded tokens, each micro-batch counted `overhead_tokens` more:
    what its fixed cost is worth. A function of the lengths and their order alone.
    """
    if token_budget < 1:
        raise ValueError(f"token_budget is {token_budget}, must be at least 1")
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    count = len(order)
    least = [0] * (count + 1)
    end_of = [count] * count
    for start in range(count - 1, -1, -1):
        longest = max(lengths[order[start]], 1)
        most_rows = max(token_budget // longest, 1)
        options = (
            (longest * (end - start) + overhead_tokens + least[end], -end)
            for end in range(start + 1, min(start + most_rows, count) + 1)
        )
        least[start], end = min(options)
        end_of[start] = -end
    batches = []
    start = 0
    while start < count:
        batches.append(order[start : end_of[start]])
        start = end_of[start]
    return batches
