"""What each role may do on the server: the commands and the keys that it uses, and the server's ACL file made of them.

A selector grants commands on its own keys alone: a trainer that may read `scored` cannot write to it. No role may run
scripts, configure, flush, or list keys. Needs Redis 7.0 or Valkey 7.2.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.wire.access.roles import Role
from headrace.wire.streams.protocol import CONSUMER_GROUP, StreamName
from headrace.wire.streams.redis.client import key_of

SENTINEL = "sentinel"
"""Key that is lost with the server's data."""
_EACH = ("ping", "select")
_TRANSACTION = ("multi", "exec")


def failures_of(stream: StreamName) -> str:
    """Key of the hash with the noticed failures of a stream's entries."""
    return f"failures:{stream}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Commands on some keys of a run; `command|subcommand` grants that one alone."""

    commands: tuple[str, ...]
    keys: tuple[str, ...]
    """Names within the run; none = commands without keys."""


def _consumes(stream: StreamName, *puts: StreamName, counts: bool = True) -> tuple[Grant, ...]:
    """A consumer of a stream whose effect is entries on the streams `puts`; `counts`: it counts failures."""
    work = ("xack", "xautoclaim", "xclaim", "xgroup|create", "xpending", "xreadgroup")
    return (
        Grant(_TRANSACTION, ()),
        Grant(work, (stream,)),
        Grant(("hdel", "hincrby") if counts else ("hdel",), (failures_of(stream),)),
        Grant(("xadd",), puts),
    )


_ENDS = (StreamName.SCORED, StreamName.EVALUATED, StreamName.DEAD)
"""Where a group ends, in training or in an evaluation, and where a payload is kept for people."""
_ISSUED = (StreamName.EPISODES, StreamName.PROMPTS)
_WORK = tuple(CONSUMER_GROUP)

GRANTS: Mapping[Role, tuple[Grant, ...]] = MappingProxyType(
    {
        Role.ORCHESTRATOR: (
            Grant(("info",), ()),
            *_consumes(StreamName.EVALUATED, *_ENDS),
            Grant(("xadd", "xinfo|stream"), _ISSUED),
            Grant(("xinfo|groups", "xlen", "xpending", "xrange", "xtrim"), _WORK),
            Grant(("xinfo|groups", "xlen", "xrevrange"), (StreamName.DEAD,)),
            Grant(("get", "set"), (SENTINEL,)),
        ),
        Role.TRAINER: _consumes(StreamName.SCORED, StreamName.DEAD, counts=False),
        Role.ROLLOUT: _consumes(StreamName.PROMPTS, StreamName.ROLLOUTS, *_ENDS),
        Role.REWARD: _consumes(StreamName.ROLLOUTS, *_ENDS),
        Role.ENVIRONMENT: _consumes(StreamName.EPISODES, StreamName.ROLLOUTS, *_ENDS),
        # `headrace prepare` and `headrace doctor`.
        Role.OPERATOR: (Grant(("info",), ()), Grant(("xinfo|stream",), _ISSUED)),
    }
)
"""Role -> what it uses, beside what each uses; the other roles have no business with the server."""


def rule_of(role: Role, run_id: str) -> str:
    """The role's permissions on a run, as `ACL SETUSER` and the lines of an ACL file have them. Pure."""
    plain = [*_EACH, *(command for grant in GRANTS[role] if not grant.keys for command in grant.commands)]
    selectors = [
        f"({' '.join([*(f'~{key_of(run_id, key)}' for key in grant.keys), *_granted(grant.commands)])})"
        for grant in GRANTS[role]
        if grant.keys
    ]
    return " ".join(["resetchannels", "-@all", *_granted(plain), *selectors])


def acl_file(passwords: Mapping[Role, str], run_id: str) -> str:
    """The whole file: a user for each role, named by it, and no default user. Passwords are SHA-256 digests. Pure."""
    users = [
        f"user {role} on #{hashlib.sha256(passwords[role].encode()).hexdigest()} {rule_of(role, run_id)}"
        for role in GRANTS
    ]
    return "\n".join(["user default off", *users]) + "\n"


def _granted(commands: "tuple[str, ...] | list[str]") -> list[str]:
    return [f"+{command}" for command in commands]
