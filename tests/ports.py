"""Ports for servers that tests start, kill and start again."""

from headrace.supervisor.ports import pick_ports


def free_port() -> int:
    """A loopback port that nobody listens on, and that the kernel gives to no outgoing connection meanwhile."""
    return pick_ports(1)[0]
