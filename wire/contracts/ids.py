"""Derived identity: group index -> group id -> rollout id -> seed. Nothing here is drawn at random.

Two issues of one group have one id, so a consumer that accepts each id once accepts each group once; on a
deterministic engine a rollout repeated from its seed is the same rollout.
"""

import hashlib
import re

_RUN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def group_id(run_id: str, group_index: int) -> str:
    """Id of a training group: readable, and sortable by issue order."""
    return f"{run_id}/g{group_index:08d}"


def eval_group_id(run_id: str, version: int, prompt_index: int) -> str:
    """Id of an evaluation group: held-out prompt `prompt_index` at `version`."""
    return f"{run_id}/e{version:06d}-{prompt_index:06d}"


def rollout_id(group: str, rollout_index: int) -> str:
    """Id of rollout `rollout_index` of a group."""
    return f"{group}/{rollout_index}"


def rollout_seed(run_seed: int, group: str, rollout_index: int) -> int:
    """Seed of one rollout's sampling: 63 bits of a hash of (run seed, group id, rollout index).

    The group id's part after the run id is hashed, so that two runs with one seed sample alike.
    """
    text = f"{run_seed}|{group.partition('/')[2]}|{rollout_index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def turn_seed(run_seed: int, group: str, rollout_index: int, turn: int) -> int:
    """Seed of turn `turn` (from 0) of one rollout's episode: 63 bits of a hash, as for `rollout_seed`."""
    text = f"{run_seed}|{group.partition('/')[2]}|{rollout_index}|{turn}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def check_run_id(text: str) -> str:
    """Returns `text` if it may name a run (it becomes a stream prefix), else raises ValueError."""
    if not _RUN_ID.fullmatch(text):
        raise ValueError(f"run id {text!r} must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or digit")
    return text
