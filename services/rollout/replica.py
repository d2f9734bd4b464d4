"""A replica's state machine. Pure.

    STARTING -> PENDING_WEIGHTS -> SERVING <-> UPDATING -> DRAINING -> GONE, and QUARANTINED from any that lives

Only SERVING takes prompts and gives rollouts. A quarantined replica holds weights that nobody may use; the next
publication cures it. Where engine and trainer take turns on a GPU, a replica is SLEEPING while the trainer steps: its
engine holds neither weights nor cache, and the next publication wakes it.
"""

from enum import StrEnum
from types import MappingProxyType


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    """Loading; cannot be published to."""
    PENDING_WEIGHTS = "pending_weights"
    """Has no weights it may serve with."""
    SERVING = "serving"
    UPDATING = "updating"
    """In a publication: the gate is closed."""
    DRAINING = "draining"
    """Hands back what it has, and ends."""
    GONE = "gone"
    QUARANTINED = "quarantined"
    """Its weights failed verification."""
    SLEEPING = "sleeping"
    """The GPU is the trainer's for now."""


_S = ReplicaState

NEXT = MappingProxyType(
    {
        _S.STARTING: frozenset({_S.PENDING_WEIGHTS, _S.DRAINING, _S.QUARANTINED}),
        _S.PENDING_WEIGHTS: frozenset({_S.UPDATING, _S.DRAINING, _S.QUARANTINED, _S.SLEEPING}),
        _S.SERVING: frozenset({_S.UPDATING, _S.DRAINING, _S.QUARANTINED, _S.SLEEPING}),
        _S.UPDATING: frozenset({_S.SERVING, _S.PENDING_WEIGHTS, _S.DRAINING, _S.QUARANTINED}),
        _S.QUARANTINED: frozenset({_S.UPDATING, _S.DRAINING, _S.SLEEPING}),
        _S.SLEEPING: frozenset({_S.UPDATING, _S.DRAINING}),
        _S.DRAINING: frozenset({_S.GONE}),
        _S.GONE: frozenset[_S](),
    }
)
"""Which states may follow each state."""

PUBLISHABLE = frozenset({_S.PENDING_WEIGHTS, _S.SERVING, _S.QUARANTINED, _S.SLEEPING})
"""States from which an update may begin."""
TIRED = frozenset({_S.PENDING_WEIGHTS, _S.SERVING, _S.QUARANTINED})
"""States from which a replica may be put to sleep."""


class IllegalTransitionError(AssertionError):
    """A bug of ours: no input can ask for a transition that is not in `NEXT`."""


def advance(current: ReplicaState, target: ReplicaState) -> ReplicaState:
    """Returns `target`; raises IllegalTransitionError unless it may follow `current`."""
    if target not in NEXT[current]:
        raise IllegalTransitionError(f"{current} -> {target}")
    return target
