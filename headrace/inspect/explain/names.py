"""Parses the name of a group or rollout as the user writes it. Pure."""

import re
from dataclasses import dataclass

from headrace.wire.contracts import eval_group_id, group_id
from headrace.wire.errors import ConfigError

_NAME = re.compile(r"(?:g?(?P<group>\d+)|e(?P<version>\d+)-(?P<prompt>\d+))(?:/r?(?P<rollout>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A group, or one rollout of it."""

    group_id: str
    rollout: int | None
    """Its number in the group; None: all of them."""
    index: int
    """Index of the group in issue order, or of the held-out prompt."""
    eval_version: int | None = None
    """None: a training group."""


def parse_name(text: str, run_id: str) -> Wanted:
    """Parses names: `demo/g00000059/3`, `demo/g00000059`, `g59/3`, `59`, `demo/e000025-000003`, `e25-3`.

    Raises ConfigError for a name of another form, or of another run.
    """
    owner, slash, rest = text.partition("/")
    if not slash or _NAME.fullmatch(text):
        owner, rest = run_id, text
    if owner != run_id:
        raise ConfigError(f"{text!r} belongs to a run {owner!r}, the run here is {run_id!r}")
    if found := _NAME.fullmatch(rest):
        rollout = None if found["rollout"] is None else int(found["rollout"])
        if found["group"]:
            index = int(found["group"])
            return Wanted(group_id=group_id(run_id, index), rollout=rollout, index=index)
        version, prompt = int(found["version"]), int(found["prompt"])
        name = eval_group_id(run_id, version, prompt)
        return Wanted(group_id=name, rollout=rollout, index=prompt, eval_version=version)
    raise ConfigError(
        f"{text!r} names no group or rollout: give {group_id(run_id, 59)} or g59 (a group), "
        f"{group_id(run_id, 59)}/3 or g59/3 (a rollout), or e25-3 (held-out prompt 3 at version 25)"
    )
