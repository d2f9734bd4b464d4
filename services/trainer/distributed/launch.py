"""Starts the ranks of a trainer: the first process of each machine starts the others there, and they share its fate.

A child runs the same command with its rank added. It dies with its parent (on Linux at once, elsewhere by the next
collective's deadline), and the parent ends when a child has died. On several machines the first processes meet at the
store of node 0 (`rendezvous`), and all ranks live and die together (`heartbeat`).
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Self

import torch
from torch._C._distributed_c10d import TCPStore

from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.heartbeat import RankHeartbeat, quiet_after
from headrace.services.trainer.distributed.rendezvous import (
    LIFE,
    WaitPolicy,
    enter,
    join_rendezvous,
    listening_address,
    open_rendezvous,
    split_address,
)
from headrace.services.trainer.distributed.stop import StopSignal
from headrace.services.trainer.distributed.topology import RankTopology, rank_device
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import TransientError
from headrace.wire.host.interfaces import address_of, address_towards, has_address, interface_of
from headrace.wire.process.environment import launched_with, nccl_cumem, set_default, set_variable
from headrace.wire.process.lifecycle import die_with_parent, in_time
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights.store import GroupStore

_HOST = "127.0.0.1"
_MET_AT = "met_at"
"""Key in the store of one machine: the host of the store at which all machines have met."""
_ENTER_S = 60.0
_LOST_S = 2.0
"""Time in which the end of a local rank is noticed after it has made a collective fail."""
log = get_logger("trainer.launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options for starting and joining the ranks."""

    device: torch.device
    """Device of this rank."""
    timeout_s: float
    """Deadline of every collective, and for the ranks of one machine to join."""
    context: int = 1
    """Number of ranks in a row that share their rows."""
    grouped: bool = False
    """Even one rank alone gets a process group, which FSDP2 and DeepSpeed need."""
    rendezvous: str = ""
    """host:port of node 0."""
    announce: str = ""
    """Address under which other machines reach this one; empty = that of the interface towards them."""
    rendezvous_timeout_s: float = 600.0
    node_timeout_s: float = 60.0

    @classmethod
    def of(cls, settings: TrainerSettings | StageSettings, place: RankTopology, *, grouped: bool) -> Self:
        """Reads the options from the settings."""
        table = settings.trainer
        return cls(
            device=rank_device(settings.run.device, place.local),
            timeout_s=table.collective_timeout_s,
            context=table.cp,
            grouped=grouped,
            rendezvous=table.rendezvous,
            announce=settings.announce,
            rendezvous_timeout_s=table.rendezvous_timeout_s,
            node_timeout_s=table.node_timeout_s,
        )


class RankProcesses:
    """The ranks of this machine, and their connection to those of the others."""

    def __init__(self, place: RankTopology, options: LaunchOptions, stop: StopSignal | None = None) -> None:
        """Starts this machine's other ranks: call it in the main thread, before there are other threads.

        `stop`: given on the first process of each machine.
        """
        self._place, self._options, self._stop = place, options, stop
        self._heartbeat: RankHeartbeat | None = None
        self._store: GroupStore | None = None
        self._watchers: list[threading.Thread] = []
        if not place.first or not self._has_group:
            return
        try:
            self._store = GroupStore(_HOST, timeout_s=options.timeout_s)
        except (RuntimeError, OSError) as error:
            raise TransientError(f"rank {place.rank} could not open a store: {error}") from error
        for child in place.children(self._store.port):
            self._start(child)

    @property
    def _has_group(self) -> bool:
        return self._place.ranks > 1 or self._options.grouped

    @contextlib.contextmanager
    def joined(self) -> Iterator[Ranks]:
        """Joins the ranks. An error raised within it ends the ranks on all machines, with a report of lost ranks.

        Raises TransientError when a rank or a machine does not join in time, StoppedError when `stop` was asked before.
        """
        try:
            yield self.join()
        except BaseException as error:
            if isinstance(error, TransientError):
                self._await_watchers()
            if self._heartbeat is not None:
                self._heartbeat.failed(error)
            raise

    def join(self) -> Ranks:
        """Joins the ranks as `joined` does, but reports no error: other ranks detect one through collectives alone."""
        place, options = self._place, self._options
        if not self._has_group:
            return Ranks.alone()
        nccl_cumem()
        if place.nodes == 1 and (name := interface_of(_HOST)):
            # Whatever interface a cluster names, or the host's name resolves to.
            set_variable("GLOO_SOCKET_IFNAME", name)
        store = self._join_one_machine() if place.nodes == 1 else self._join_machines()
        ranks = Ranks.join(
            place.rank,
            place.ranks,
            store,
            device=options.device,
            timeout_s=options.timeout_s,
            context=options.context,
        )
        ranks.beside = place.ranks // place.nodes
        if self._store is not None and (reason := self._store.seal()):
            log.warning(
                "store_not_sealed", reason=reason, effect="other users of this machine can write to the ranks' store"
            )
        if self._heartbeat is not None:
            ranks.before_leaving = self._heartbeat.quit
        return ranks

    def _join_one_machine(self) -> TCPStore:
        if self._store is not None:
            return self._store.client
        return self._client(_HOST, self._place.port)

    def _client(self, host: str, port: int) -> TCPStore:
        try:
            return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=self._options.timeout_s))
        except RuntimeError as error:
            rank = self._place.rank
            raise TransientError(f"rank {rank} found no store of rank 0 at {host}:{port}: {error}") from error

    def _join_machines(self) -> TCPStore:
        place, options = self._place, self._options
        host, port = split_address(options.rendezvous)
        given_up = self._stop.asked if self._stop is not None else lambda: False
        patience = WaitPolicy(options.rendezvous_timeout_s, given_up)
        if place.first and place.node == 0:
            address = listening_address(host, options.announce, patience)
            store = open_rendezvous(place, port, patience, address=address)
            # What `host` resolves to may be routed out of the machine and not back in.
            host, life = address or _HOST, store.get(LIFE).decode()
        else:
            life, host = self._hear_of_life(patience, host)
            store = enter(host, port, life, timeout_s=_ENTER_S)
        if place.first:
            self._pass_life_on(life, host)
        # Not before: the name of machine 0 is known by now.
        self._choose_interface(split_address(options.rendezvous)[0])
        store.set_timeout(timedelta(seconds=options.timeout_s))
        own = partial(enter, host, port, life, timeout_s=_ENTER_S)
        self._heartbeat = RankHeartbeat(own, place, timeout_s=options.node_timeout_s, stop=self._stop)
        self._heartbeat.start()
        return store

    def _choose_interface(self, host: str) -> None:
        """Selects gloo's interface, which would otherwise be the one that the host's name resolves to.

        It is the announced address's, if this machine has it, else the one towards machine 0.
        """
        try:
            announced = address_of(self._options.announce) if self._options.announce else ""
            name = interface_of(announced if announced and has_address(announced) else address_towards(host))
        except OSError as error:
            log.warning("no_interface", towards=host, error=str(error), effect="gloo guesses one from the host's name")
            return
        if name:
            set_default("GLOO_SOCKET_IFNAME", name)

    def _pass_life_on(self, life: str, host: str) -> None:
        assert self._store is not None
        self._store.client.set(_MET_AT, host)
        self._store.client.set(LIFE, life)

    def _hear_of_life(self, patience: WaitPolicy, host: str) -> tuple[str, str]:
        """On all ranks but 0: returns the id of the life to join, and the host of its store.

        A child asks the first process of its machine, and joins no other life.
        """
        if self._place.first:
            quiet_s = quiet_after(self._options.node_timeout_s)
            return join_rendezvous(self._place, self._options.rendezvous, patience, quiet_s=quiet_s), host
        first = self._client(_HOST, self._place.port)
        seconds = self._options.rendezvous_timeout_s + _ENTER_S
        try:
            first.wait([LIFE], timedelta(seconds=seconds))
            life, met_at = (in_time(partial(first.get, key), seconds, "ask-store").decode() for key in (LIFE, _MET_AT))
            return life, met_at
        except (RuntimeError, OSError) as error:
            name = self._place.name(self._place.rank)
            raise TransientError(f"{name} received no rendezvous: {error}") from error

    def _start(self, place: RankTopology) -> None:
        command = [sys.executable, *sys.orig_argv[1:], *place.arguments()]
        # With the launcher's variables: they may be all that names this machine.
        process = subprocess.Popen(command, env=launched_with(), stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        log.info("rank_started", rank=place.rank, pid=process.pid)
        watch = partial(self._watch, place.rank, process)
        watcher = threading.Thread(target=watch, daemon=True, name=f"rank-{place.rank}")
        self._watchers.append(watcher)
        watcher.start()

    def _await_watchers(self) -> None:
        """Leaves a lost rank to its watcher, which names it: a collective fails as soon as its socket closes."""
        end = time.monotonic() + _LOST_S
        for one in self._watchers:
            one.join(max(end - time.monotonic(), 0.0))

    def _watch(self, rank: int, process: "subprocess.Popen[bytes]") -> None:
        """Ends this process when the child fails: collectives that wait for it would block until their deadline.

        Exits with the child's own code, which shows whether a retry makes sense.
        """
        code = process.wait()
        if not code:
            return
        log.error("rank_lost", rank=rank, node=self._place.node, exit_code=code, effect="all ranks end")
        if self._heartbeat is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._heartbeat.declare(f"{self._place.name(rank)} {how}", max(code, 1))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if code > 0 else 1)
