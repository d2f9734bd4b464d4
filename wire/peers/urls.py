"""URLs as they are shown, and whether they lead out of the run's own network. Pure."""

import ipaddress
import re

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """The text, with each URL in it without user and password.

    >>> without_credentials("redis://trainer:secret@host:6379/0")
    'redis://host:6379/0'
    """
    return _CREDENTIALS.sub("", text)


_OWN_DOMAINS = (".svc", ".local", ".internal", ".localhost")


def is_internal(host: str) -> bool:
    """Whether a proxy of the environment has no business between here and `host`.

    That is an address of this machine or of a private network, or a name without a public domain, as Compose and
    Kubernetes give them.

    >>> [is_internal(host) for host in ("127.0.0.1", "10.1.2.3", "orchestrator", "a.b.svc", "example.com", "8.8.8.8")]
    [True, True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_private
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").endswith(_OWN_DOMAINS)
