"""Retraction: recomputes the cached prefixes of running rollouts after the weights have changed."""

import torch

from headrace.services.rollout.engines.torch.groups import Member
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.rows import RowState

_TOKENS_AT_ONCE = 4096
_SIMILAR = 0.7
"""Rows are recomputed together if the shortest has at least this share of the longest's tokens."""


def recompute(model: Model, rows: RowState, members: list[Member], device: torch.device) -> int:
    """Recomputes the cache of all rows of `members`, each prompt once; returns the number of tokens computed.

    The last sampled token of a row is not in the cache yet: the next decode step writes it.
    """
    computed = 0
    by_group: dict[int, list[int]] = {}
    for row, member in enumerate(members):
        by_group.setdefault(id(member.group), []).append(row)
    for places in by_group.values():
        prompt = torch.tensor(members[places[0]].group.request.token_ids, dtype=torch.int64, device=device)
        model.prefill(places[0], prompt)
        model.cache.copy_prefix(places[0], places[1:], len(prompt))
        computed += len(prompt)
    lengths = {row: count - 1 for row, count in enumerate(rows.counts(len(members))) if count > 1}
    for part in _parts(lengths):
        longest = lengths[part[0]]
        index = torch.tensor(part, device=device)
        starts = [len(members[row].group.request.token_ids) for row in part]
        end = max(start + lengths[row] for start, row in zip(starts, part, strict=True))
        model.extend(index, torch.tensor(starts, device=device), rows.tokens(index, longest), end)
        computed += sum(lengths[row] for row in part)
    return computed


def _parts(lengths: dict[int, int]) -> list[list[int]]:
    """Batches of rows of similar length, longest first."""
    parts: list[list[int]] = []
    for row in sorted(lengths, key=lambda each: -lengths[each]):
        longest = lengths[parts[-1][0]] if parts else 0
        if parts and lengths[row] >= _SIMILAR * longest and (len(parts[-1]) + 1) * longest <= _TOKENS_AT_ONCE:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts
