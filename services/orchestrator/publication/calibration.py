"""Decides, where a replica's checksums differ from the trainer's, whether the trainer's table or the weights are wrong.

Both sides have the same bytes in one case: the server before its first publication, and `model.path`. A tensor that
differs there shows that the trainer's table of the server's layout is wrong; one that agrees there, that the weights
are wrong. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.wire.v1.common_pb2 import TensorChecksum

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on one replica."""

    damaged: bool
    """The table is right for this server, so the server holds other weights."""
    words: str


def judge(
    doubted: Iterable[TensorChecksum], folder: Mapping[str, str], *, loaded_known: bool, why_not: str = ""
) -> Judgement:
    """Compares the server's checksums of what it loaded (`doubted`) with the trainer's of `model.path` (`folder`).

    `loaded_known`: the server has such checksums. `why_not`: why `folder` is empty. Without anything to compare, the
    replica does not count as damaged.
    """
    found = {one.name: one.value for one in doubted}
    names = _some(list(found))
    if not loaded_known:
        return Judgement(False, f"{names} differ from the trainer's table; what the server had loaded is not known")
    computed = {name: folder[name] for name in found if name in folder}
    if not computed:
        reason = why_not or "the trainer cannot compute them from model.path"
        return Judgement(False, f"{names} differ from the trainer's table, which cannot be tried: {reason}")
    wrong = [name for name, value in computed.items() if found[name] != value]
    if wrong:
        return Judgement(False, f"the trainer's table does not fit this server: {_some(wrong)} differ in model.path")
    return Judgement(True, f"{names} are not the trainer's")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more tensors" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
