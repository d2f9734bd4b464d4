"""Rendezvous of the machines of a trainer: the first process of each joins the store of machine 0.

That store is one life of the trainer, with an id. A machine that joins renews its entry, so that machine 0 counts only
live ones; when all are there it writes the roster, and no machine can join any more. A machine that arrives later was
restarted: once the beats of its previous process have stopped, it declares that life over and waits for the next one.
"""

import errno
import ipaddress
import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeVar

from torch._C._distributed_c10d import Store, TCPStore

from headrace.services.trainer.distributed.stop import StoppedError
from headrace.services.trainer.distributed.topology import RankTopology
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.host.interfaces import address_of, address_towards, has_address
from headrace.wire.process.lifecycle import in_time
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights.store import listening_store

T = TypeVar("T")
LIFE, OVER = "life", "over"
"""Keys: the id of the life; why it is over, as JSON with `reason` and `code`."""
_SHAPE, _ROSTER = "shape", "roster"
_PAUSE_S = 0.3
_FRESH_S = 5.0
"""Seconds without a renewed entry after which a machine may be gone."""
_ANSWER_S = 10.0
_REPORT_S = 30.0
_BIND_S = 60.0
"""A former life that is just being killed may still hold the port."""
_LOOPBACK = "127.0.0.1"
log = get_logger("trainer.rendezvous")


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How long to wait, and what may end the wait early."""

    seconds: float
    given_up: Callable[[], bool] = lambda: False
    key: str = " (trainer.rendezvous_timeout_s)"
    """The setting that gives `seconds`, for the error message."""

    def waiting(self) -> "_Wait":
        """Starts a wait."""
        return _Wait(self)


class _LateError(TransientError):
    """The deadline of a rendezvous has passed."""


class _Wait:
    def __init__(self, patience: WaitPolicy) -> None:
        self._patience = patience
        self._end = time.monotonic() + patience.seconds
        self._reported_at = time.monotonic() - _REPORT_S + 2.0

    def pause(self, what: str) -> None:
        """Sleeps briefly. Raises TransientError naming `what` at the deadline, StoppedError when given up."""
        if self._patience.given_up():
            raise StoppedError(f"asked to stop while it waited for {what}")
        now = time.monotonic()
        if now > self._end:
            raise _LateError(f"waited {self._patience.seconds:.0f} s{self._patience.key} for {what}")
        if now - self._reported_at > _REPORT_S:
            log.info("waiting", waiting_for=what)
            self._reported_at = now
        time.sleep(_PAUSE_S)


def split_address(rendezvous: str) -> tuple[str, int]:
    """Splits `host:port`."""
    host, _, port = rendezvous.rpartition(":")
    return host.strip("[]"), int(port)


def connect(host: str, port: int, *, timeout_s: float = _ANSWER_S) -> TCPStore:
    """Connects a client to a store. Raises TransientError if it does not answer in time, however it fails."""

    def try_it() -> TCPStore:
        # Tried first: torch's store takes twice its deadline to find that no process listens.
        socket.create_connection((host, port), timeout_s).close()
        limit = timedelta(seconds=timeout_s)
        return TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)

    try:
        return in_time(try_it, 2 * timeout_s, "connect-store")
    except (RuntimeError, OSError) as error:
        raise TransientError(f"no store answers at {host}:{port}: {error}") from error


def enter(host: str, port: int, life: str, *, timeout_s: float) -> TCPStore:
    """Opens one more connection to the life that this process belongs to.

    Raises TransientError if that life is over (the next one may listen there by now), and as `connect` does.
    """
    store = connect(host, port, timeout_s=timeout_s)
    try:
        found = _ask(partial(store.get, LIFE)).decode()
    except (RuntimeError, OSError) as error:
        raise TransientError(f"the store at {host}:{port} does not report its life: {error}") from error
    if found != life:
        raise TransientError(f"node 0 was started again: life {life} is over, {found} has begun")
    return store


def open_rendezvous(place: RankTopology, port: int, patience: WaitPolicy, *, address: str = _LOOPBACK) -> TCPStore:
    """On machine 0: opens the store and returns it when all machines have joined.

    It listens at `address` alone, at every one of this machine if it is empty. Raises ConfigError if it cannot.
    """
    wait = patience.waiting()
    store = _listen(address, port, patience)
    store.set(_SHAPE, _shape(place))
    store.set(LIFE, secrets.token_hex(8))
    came: dict[int, str] = {}
    heard: dict[int, float] = {}
    while True:
        now = time.monotonic()
        for node in range(1, place.nodes):
            said = store.get(_came(node)).decode() if store.check([_came(node)]) else ""
            if said != came.get(node, ""):
                came[node], heard[node] = said, now
        missing = [node for node in range(1, place.nodes) if now - heard.get(node, -_FRESH_S) >= _FRESH_S]
        if not missing:
            store.set(_ROSTER, json.dumps({node: said.partition(" ")[0] for node, said in came.items()}))
            log.info("met", nodes=place.nodes, life=store.get(LIFE).decode())
            return store
        names = ", ".join(f"node {node}" for node in missing)
        wait.pause(f"{names} of {place.nodes} to come to node 0, which listens at {address or 'every address'}:{port}")


def listening_address(host: str, announce: str, patience: WaitPolicy) -> str:
    """The address of machine 0 at which the others find its store: no other of its addresses is a door.

    It is what the host of `trainer.rendezvous` resolves to, if this machine has that address; else, as behind a
    translation of addresses, the announced one or the one on the way there. Empty, for every address, where these are
    of loopback and the host is not: a Debian machine resolves its own name to 127.0.1.1. Waits for a name that is not
    known yet; raises TransientError at the deadline.
    """
    wait = patience.waiting()
    while True:
        try:
            resolved, towards = address_of(host), address_towards(host)
        except OSError as error:
            wait.pause(f"the host {host} of trainer.rendezvous to be known ({error})")
            continue
        if _is_loopback(host) or host == "localhost":
            return resolved
        for address in (resolved, _announced(announce), towards):
            if address and not _is_loopback(address) and has_address(address):
                return address
        fix = "give trainer.rendezvous, or HEADRACE_ANNOUNCE, the address that the other machines reach"
        log.warning("store_at_every_address", host=host, resolved=resolved, fix=fix)
        return ""


def _announced(name: str) -> str:
    try:
        return address_of(name) if name else ""
    except OSError as error:
        log.warning("announced_host_unknown", host=name, error=str(error))
        return ""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False  # A name.


def _listen(address: str, port: int, patience: WaitPolicy) -> TCPStore:
    wait = WaitPolicy(min(_BIND_S, patience.seconds), patience.given_up, key="").waiting()
    while True:
        try:
            if address:
                return listening_store(address, port=port, timeout_s=_ANSWER_S)
            limit = timedelta(seconds=_ANSWER_S)
            return TCPStore(_LOOPBACK, port, is_master=True, wait_for_workers=False, timeout=limit)
        except (RuntimeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EADDRINUSE:
                raise ConfigError(f"trainer.rendezvous: node 0 cannot listen at {address}:{port}: {error}") from error
            wait.pause(
                f"port {port} of trainer.rendezvous, which another process holds: end that one, or take another port "
                f"({_first_line(error)})"
            )


def join_rendezvous(place: RankTopology, rendezvous: str, patience: WaitPolicy, *, quiet_s: float) -> str:
    """On every other machine: joins the life of machine 0 and returns its id.

    A process that has not beaten for `quiet_s` is dead. Raises ConfigError if machine 0 has another number of machines
    or ranks, or if another live process has this machine's number.
    """
    host, port = split_address(rendezvous)
    wait = patience.waiting()
    token = secrets.token_hex(8)
    reason = ""
    while True:
        try:
            store = connect(host, port)
            life = _try_once(place, store, token, wait)
            if life:
                return life
            _end_life(place, store, quiet_s, wait)
            reason = ": its current life continues without this machine, and is notified"
        except _LateError:
            raise
        except (RuntimeError, OSError) as error:
            reason = f": {_first_line(error)}"
        wait.pause(f"node 0 at {rendezvous}{reason}")


def _try_once(place: RankTopology, store: Store, token: str, wait: _Wait) -> str:
    """Returns the id of the life, or an empty string if it began without this machine."""
    shape = _ask(partial(store.get, _SHAPE)).decode()
    if shape != _shape(place):
        raise ConfigError(
            f"node {place.node} has trainer.nodes and ranks {_shape(place)}, node 0 has {shape}: "
            "give all machines the same settings file"
        )
    count = 0
    while True:
        # Renewed each time: a machine that falls silent is not counted.
        count += 1
        _ask(partial(store.set, _came(place.node), f"{token} {count}"))
        if _ask(lambda: store.check([_ROSTER])):
            break
        wait.pause("node 0 to see all machines: it names the missing ones")
    if json.loads(_ask(partial(store.get, _ROSTER))).get(str(place.node)) == token:
        return bytes(_ask(partial(store.get, LIFE))).decode()
    return ""


def _end_life(place: RankTopology, store: Store, quiet_s: float, wait: _Wait) -> None:
    """Ends the life that runs with another process as this machine, once that process is dead.

    Raises ConfigError if it still beats at the deadline: a process that is being ended would be gone by then.
    """
    name, key = f"node {place.node}", beat_key(place.rank)
    began = heard = time.monotonic()
    beat = b""
    while time.monotonic() - heard < quiet_s:
        found = bytes(_ask(partial(store.get, key))) if _ask(partial(store.check, [key])) else b""
        if found != beat:
            beat, heard = found, time.monotonic()
        try:
            wait.pause(f"the process that is {name} already to end: it beats")
        except _LateError as error:
            if heard - began < quiet_s:
                raise
            raise ConfigError(
                f"{name} is there already, and still sends heartbeats ({error}): give every machine its own "
                "HEADRACE_NODE, or end that process first"
            ) from error
    verdict = {"reason": f"{name} was started again", "code": 1}
    _ask(partial(store.compare_set, OVER, "", json.dumps(verdict)))


def _ask(question: Callable[[], T]) -> T:
    return in_time(question, _ANSWER_S, "ask-store")


def beat_key(rank: int) -> str:
    """Key of a rank's newest beat, a growing number."""
    return f"beat/{rank}"


def _came(node: int) -> str:
    return f"came/{node}"


def _shape(place: RankTopology) -> str:
    return f"{place.nodes} x {place.ranks // place.nodes}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
