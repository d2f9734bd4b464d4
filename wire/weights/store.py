"""torch's rendezvous store, on the address that it is given: torch's own listens on every interface."""

import ctypes
import os
import socket
import struct
import sys
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

_BACKLOG = 4096
_SO_ATTACH_FILTER = 26
_RETURN = 0x06
"""`BPF_RET | BPF_K` of linux/filter.h: returns how many bytes of a packet may pass."""


def listening_store(host: str, *, timeout_s: float) -> TCPStore:
    """Opens a store on a free port of `host`; it lives as long as the returned object.

    Raises OSError where `host` is no address of this machine, RuntimeError if torch cannot serve.
    """
    with _listening(host) as listening:
        return _store(host, listening, timeout_s)


class GroupStore:
    """The store of one group, which takes connections until it is sealed. It lives as long as this object."""

    def __init__(self, host: str, *, timeout_s: float) -> None:
        """Raises like `listening_store`."""
        self._listening = _listening(host)
        try:
            self._store: TCPStore | None = _store(host, self._listening, timeout_s)
        except BaseException:
            self._listening.close()
            raise
        self.port: int = self._store.port

    def seal(self) -> str:
        """Refuses every connection from now on; those of the members, who have joined, go on.

        Returns why it cannot, or an empty string: Linux alone has the filter, and not every kernel lets a process
        without privileges attach one (in a container it is EPERM here).

        torch's store has no password, lists its keys to each client, and cannot stop listening. A filter in the kernel
        drops every packet to the listening socket instead: connections that it has accepted have sockets of their own.
        NCCL's members use the connection that they joined with (ProcessGroupNCCL: `globalStore_` is the store beneath
        the prefixes, not a clone).
        """
        if sys.platform != "linux":
            return f"{sys.platform} has no filters of sockets"
        drop = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, 0))
        program = struct.pack("@HP", 1, ctypes.addressof(drop))
        try:
            self._listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        except OSError as error:
            return f"a filter of its packets: {error.strerror}"
        return ""

    def close(self) -> None:
        """Ends the store, unless a member in this process still uses it; idempotent."""
        self._store = None
        self._listening.close()

    def __del__(self) -> None:
        self._listening.close()


def _listening(host: str) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _store(host: str, listening: socket.socket, timeout_s: float) -> TCPStore:
    return TCPStore(
        host,
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
        # The store closes what it is given.
        master_listen_fd=os.dup(listening.fileno()),
    )
