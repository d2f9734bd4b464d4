"""Where a replica's checksums differ from the trainer's: is the trainer's table wrong, or are the weights? Pure.

Both sides have the same bytes in one case: the server before its first publication, and `model.path`. What differs
there shows that the trainer's table of the server's layout is wrong; what agrees there, that the weights are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wire.v1.common_pb2 import TensorChecksum

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one replica."""

    damaged: bool
    """The table is right for this server, so it holds other weights."""
    words: str


def judge(
    doubted: Iterable[TensorChecksum], folder: Mapping[str, str], *, loaded_known: bool, why_not: str = ""
) -> Judgement:
    """`doubted` have the server's checksums of what it loaded (`loaded_known`), `folder` what the trainer says of it.

    `why_not`: why `folder` is empty. Where nothing can be compared the replica is not damaged as far as is known.
    """
    found = {one.name: one.value for one in doubted}
    names = _some(list(found))
    if not loaded_known:
        return Judgement(False, f"{names} differ from the trainer's table; what the server had loaded is not known")
    told = {name: folder[name] for name in found if name in folder}
    if not told:
        reason = why_not or "the trainer cannot tell what they are in model.path"
        return Judgement(False, f"{names} differ from the trainer's table, which cannot be tried: {reason}")
    wrong = [name for name, value in told.items() if found[name] != value]
    if wrong:
        return Judgement(False, f"the trainer's table does not fit this server: {_some(wrong)} differ in model.path")
    return Judgement(True, f"{names} are not the trainer's")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more tensors" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
