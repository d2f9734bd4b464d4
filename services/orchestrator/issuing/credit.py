"""How many groups may be open: the bound on staleness, and the back-pressure on all services. Pure."""


def credit_limit(*, version: int, max_steps: int, max_staleness: int, groups_per_batch: int) -> int:
    """Maximum number of groups issued and neither trained nor dropped: (max_staleness + 1) batches.

    Near the end of the run, no more than the remaining steps can train.
    """
    batches = min(max_staleness + 1, max(0, max_steps - version))
    return batches * groups_per_batch


def room(limit: int, num_open: int) -> int:
    """Groups that may be issued now."""
    return max(0, limit - num_open)
