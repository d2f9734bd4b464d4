"""Decides whether to trust the trainer's checksums where an engine's own differ from them. Pure.

The trainer computes them from a table of how engines lay out their tensors. A wrong entry in it must not quarantine a
healthy replica: until the table has matched once for this server, differing tensors are only doubted, and the
orchestrator asks the trainer for the checksums of `model.path`, which the server loaded before its first publication.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.wire.v1.common_pb2 import TensorChecksum


@dataclass(frozen=True, slots=True)
class Compared:
    """Result of comparing an engine's checksums with the trainer's."""

    differing: tuple[str, ...]
    """Differing tensors, in the trainer's order."""
    wrong: bool
    """The table matched for one of these before, so the weights are wrong."""
    unknown: int
    """Number of unproven tensors: those without a checksum from trainer or engine; all, if any tensor differs."""
    unhashed: tuple[str, ...]
    """Tensors that the engine cannot hash."""


class TableTrust:
    """Trust in the trainer's table for one engine; starts anew with each start of its server."""

    def __init__(self, loaded: Mapping[str, str]) -> None:
        """`loaded`: the server's checksums of `model.path`, from before its first update; empty if not known."""
        self._loaded = loaded
        self._right: set[str] = set()
        """Tensors for which the table has matched."""

    def compare(self, found: Mapping[str, str], wanted: Iterable[TensorChecksum]) -> Compared:
        """Compares one version's checksums with the trainer's. An empty value: the engine cannot hash the tensor."""
        unhashed = tuple(name for name, value in found.items() if not value)
        expected = {one.name: one.value for one in wanted if one.name not in unhashed}
        differing = tuple(name for name, value in expected.items() if found.get(name) != value)
        if not differing:
            self._right |= expected.keys()
        unknown = len(found) if differing else len(found.keys() - expected.keys())
        return Compared(differing, not self._right.isdisjoint(differing), unknown, unhashed)

    def loaded(self, names: Iterable[str]) -> list[TensorChecksum]:
        """Checksums of these tensors as loaded from `model.path`; empty values for tensors without one."""
        return [TensorChecksum(name=name, value=self._loaded.get(name, "")) for name in names]

    @property
    def loaded_known(self) -> bool:
        """Whether the checksums of `model.path` are known."""
        return bool(self._loaded)
