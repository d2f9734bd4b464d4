"""What of a run's traffic leaves the machine in the clear, and what is done about it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.config.schema import RunFile
from headrace.wire.access.exposure import carried, leaves_in_the_clear


@dataclass(frozen=True, slots=True)
class Exposure:
    """One kind of traffic that a reader of the network understands."""

    what: str
    way_out: str


def exposures(config: RunFile, *, apart: bool, encrypts: bool = False) -> list[Exposure]:
    """The kinds of traffic of a run that leave a machine and are not encrypted.

    `apart`: its services may be on several machines; `encrypts`: they have certificates.
    """
    found = []
    if apart and not encrypts:
        found.append(Exposure("gRPC is not encrypted", "HEADRACE_TLS with certificates (headrace certs init)"))
    # A run that other machines join has an embedded broker with a port.
    own = apart and not config.broker.url
    if config.run.stage == "rl" and (own or leaves_in_the_clear(config.broker.url)):
        found.append(Exposure("the broker's traffic is not encrypted", "a rediss:// URL"))
    weights = apart and config.run.stage == "rl" and config.trainer.publish != "disk"
    if traffic := carried(config.trainer.nodes, weights=weights):
        way_out = "a private network, WireGuard, or network policies"
        if weights:
            way_out += '; weights go without it by trainer.publish = "disk"'
        found.append(Exposure(f"collective traffic ({traffic}) is neither encrypted nor authenticated", way_out))
    return found


def in_words(found: Sequence[Exposure]) -> str:
    """One line; empty if all that leaves a machine is encrypted."""
    return "; ".join(f"{one.what}: use {one.way_out}" for one in found)
