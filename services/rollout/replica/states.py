"""A replica's state machine. Pure.

    STARTING -> PENDING_WEIGHTS -> UPDATING <-> SERVING -> DRAINING -> GONE; `NEXT` has all transitions

Only a SERVING replica takes prompts and publishes rollouts. A QUARANTINED replica holds weights that must not be used,
until the next publication. Where engine and trainer take turns on a GPU, a replica is SLEEPING while the trainer steps:
its engine holds neither weights nor cache, and the next publication wakes it.
"""

from enum import StrEnum
from types import MappingProxyType


class ReplicaState(StrEnum):
    """Lifecycle state of a replica."""

    STARTING = "starting"
    """Loading; cannot receive publications yet."""
    PENDING_WEIGHTS = "pending_weights"
    """Has no weights that it may serve."""
    SERVING = "serving"
    UPDATING = "updating"
    """In a publication: the gate is closed."""
    DRAINING = "draining"
    """Hands back its groups and exits."""
    GONE = "gone"
    QUARANTINED = "quarantined"
    """Its weights failed verification."""
    SLEEPING = "sleeping"
    """The trainer has the GPU for now."""


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
"""State -> states that may follow it."""

PUBLISHABLE = frozenset({_S.PENDING_WEIGHTS, _S.SERVING, _S.QUARANTINED, _S.SLEEPING})
"""States from which an update may begin."""
TIRED = frozenset({_S.PENDING_WEIGHTS, _S.SERVING, _S.QUARANTINED})
"""States from which a replica may be put to sleep."""


class IllegalTransitionError(AssertionError):
    """A transition that is not in `NEXT`: always a bug, since no input can cause one."""


def advance(current: ReplicaState, target: ReplicaState) -> ReplicaState:
    """Returns `target`; raises IllegalTransitionError unless it may follow `current`."""
    if target not in NEXT[current]:
        raise IllegalTransitionError(f"{current} -> {target}")
    return target
