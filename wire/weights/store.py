"""torch's rendezvous store, on the address that it is given: torch's own listens on every interface."""

import os
import socket
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

_BACKLOG = 4096


def listening_store(host: str, *, timeout_s: float) -> TCPStore:
    """Opens a store on a free port of `host`; it lives as long as the returned object.

    Raises OSError where `host` is no address of this machine, RuntimeError if torch cannot serve.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listening:
        listening.bind(address)
        listening.listen(_BACKLOG)
        port = listening.getsockname()[1]
        # The store closes what it is given.
        return TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
            master_listen_fd=os.dup(listening.fileno()),
        )
