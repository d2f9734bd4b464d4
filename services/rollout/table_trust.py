"""Whether the trainer's checksums are believed where an engine's own differ from them. Pure.

The trainer computes them by a table of how engines keep their tensors. A wrong entry in it must not quarantine a
healthy replica: until the table was right for a server once, what differs is only doubted, and the orchestrator asks
the trainer for the checksums of `model.path`, which the server had loaded before its first publication.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wire.v1.common_pb2 import TensorChecksum


@dataclass(frozen=True, slots=True)
class Compared:
    """An engine's checksums beside the trainer's."""

    differing: tuple[str, ...]
    """Tensors, in the trainer's order."""
    wrong: bool
    """The table was right for one of these before: the weights are others."""
    unknown: int
    """Tensors that nothing proves: the trainer said nothing of them, or is not believed, or they have no checksum."""
    unhashed: tuple[str, ...]
    """Tensors that the engine cannot hash."""


class TableTrust:
    """Of one life of an engine's server."""

    def __init__(self, loaded: Mapping[str, str]) -> None:
        """`loaded` are the server's checksums of `model.path`, before its first update; empty: they are not known."""
        self._loaded = loaded
        self._right: set[str] = set()
        """Tensors of which the table was right."""

    def compare(self, found: Mapping[str, str], wanted: Iterable[TensorChecksum]) -> Compared:
        """Holds one version's checksums against the trainer's. `found` without a value: the engine cannot hash it."""
        unhashed = tuple(name for name, value in found.items() if not value)
        told = {one.name: one.value for one in wanted if one.name not in unhashed}
        differing = tuple(name for name, value in told.items() if found.get(name) != value)
        if not differing:
            self._right |= told.keys()
        unknown = len(found) if differing else len(found.keys() - told.keys())
        return Compared(differing, not self._right.isdisjoint(differing), unknown, unhashed)

    def loaded(self, names: Iterable[str]) -> list[TensorChecksum]:
        """What these were when the server had loaded `model.path`; without a value where it had no such tensor."""
        return [TensorChecksum(name=name, value=self._loaded.get(name, "")) for name in names]

    @property
    def loaded_known(self) -> bool:
        """Whether `loaded` can tell."""
        return bool(self._loaded)
