"""How many groups a replica takes at a time. Pure."""

_AHEAD = 2
"""Batches of rows: one being decoded and one waiting, so that freed rows are filled at once."""


def group_limit(
    *, max_rows: int, group_size: int, batch_groups: int, max_staleness: int, replicas: int, deterministic: bool
) -> int:
    """Groups taken and not yet settled at the same time, at least 1.

    Never more than this replica's share of what may be issued at all: else the first replica to look would take a whole
    batch and the others would idle.
    """
    running = 1 if deterministic else max(max_rows // group_size, 1)
    share = -(-batch_groups * (max_staleness + 1) // replicas)
    return max(min(running * _AHEAD, share), 1)
