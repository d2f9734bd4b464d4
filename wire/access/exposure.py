"""What of a service's traffic leaves its machine in the clear: it says so at its start."""

from urllib.parse import urlsplit

from headrace.wire.config.settings import ServiceSettings

_LOCAL = ("", "localhost", "127.0.0.1", "::1")


def leaves_in_the_clear(url: str) -> bool:
    """Whether a broker's URL is of another machine and not encrypted."""
    parts = urlsplit(url)
    return parts.scheme.partition("+")[0] == "redis" and (parts.hostname or "") not in _LOCAL


def not_encrypted(settings: ServiceSettings) -> list[str]:
    """GRPC and the broker, as far as others may reach them, each with the way out; none on one machine. Pure."""
    found = []
    if settings.reach not in _LOCAL and settings.tls is None:
        found.append("gRPC (HEADRACE_TLS encrypts it)")
    if leaves_in_the_clear(settings.broker.url):
        found.append("the broker (a rediss:// URL encrypts it)")
    return found


def collectives_leave(settings: ServiceSettings, *, nodes: int, weights: bool) -> str:
    """What a trainer's collectives carry between machines; empty on one machine. Pure.

    `weights`: they bring weights to the replicas, which the disk does otherwise.
    """
    return carried(nodes, weights=weights and settings.reach not in _LOCAL)


def carried(nodes: int, *, weights: bool) -> str:
    """What collectives carry between so many machines, in words; empty if nothing. Pure."""
    gradients = [f"gradients between {nodes} machines"] if nodes > 1 else []
    return ", ".join(gradients + ["weights to the replicas"] * weights)
