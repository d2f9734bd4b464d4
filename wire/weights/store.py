"""torch's rendezvous store, on the address that it is given: torch's own listens on every interface."""

import os
import socket
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

_BACKLOG = 4096
_LOOK_S = 1.0


def listening_store(host: str, *, port: int = 0, timeout_s: float) -> TCPStore:
    """Opens a store on a port of `host`, a free one unless it is given; it lives as long as the returned object.

    Raises OSError if `host` is not an address of this machine or the port is taken, RuntimeError if torch cannot serve.
    """
    with _listening(host, port) as listening:
        return _store(host, listening.getsockname()[1], os.dup(listening.fileno()), timeout_s)


class GroupStore:
    """The store of one group, which takes connections until it is sealed. It lives as long as this object."""

    def __init__(self, host: str, *, timeout_s: float) -> None:
        """Raises like `listening_store`."""
        with _listening(host) as listening:
            self._family, self._address = listening.family, listening.getsockname()
            self.port: int = self._address[1]
            self._served = os.dup(listening.fileno())
            self._store: TCPStore | None = _store(host, self.port, self._served, timeout_s)

    @property
    def client(self) -> TCPStore:
        """The connection of this process itself, which stays when the store is sealed; not once it is closed."""
        assert self._store is not None
        return self._store

    def seal(self) -> str:
        """Refuses every connection from now on; members that have joined keep theirs. Idempotent.

        Returns why it could not, or an empty string.

        torch's store has no password, lists its keys to each client, and has no call to stop listening. But it goes on
        with the number of the descriptor that it was given (`uv_tcp_open`): another file under that number closes the
        socket, whose address then refuses connections, and ends what the store's loop waits for there. Connections that
        it has accepted have sockets of their own. NCCL's members use the connection that they joined with
        (ProcessGroupNCCL: `globalStore_` is the store beneath the prefixes, not a clone).
        """
        if self._store is None:
            return ""
        if not hasattr(os, "eventfd"):
            return "this system has no eventfd"
        # Never readable: a thread that still polls the descriptor sleeps.
        silent = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            os.dup2(silent, self._served, inheritable=False)
        finally:
            os.close(silent)
        return self._why_open()

    def _why_open(self) -> str:
        """Why a stranger may still connect; empty once the address refuses."""
        with socket.socket(self._family, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(_LOOK_S)
            try:
                stranger.connect(self._address)
            except ConnectionRefusedError:
                return ""
            except OSError as error:
                return f"its address neither accepts nor refuses connections: {error}"
        return "this build of torch serves another descriptor"

    def close(self) -> None:
        """Ends the store, unless a member in this process still uses it; idempotent."""
        self._store = None


def _listening(host: str, port: int = 0) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # As libuv does: the port of a life that has just ended is free.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _store(host: str, port: int, served: int, timeout_s: float) -> TCPStore:
    """`served`: the listening descriptor, which the store closes at its end."""
    return TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        master_listen_fd=served,
    )
