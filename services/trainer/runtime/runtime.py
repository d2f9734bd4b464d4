"""Everything that runs beside the training step, started and queried by the main thread."""

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Ledger
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.registration import Stub, register
from headrace.services.trainer.reporter import Reporter, end_fenced, wire_fates
from headrace.services.trainer.runtime.event_loop import BackgroundLoop
from headrace.services.trainer.runtime.inbox import Inbox
from headrace.services.trainer.runtime.token_limits import TokenLimits
from headrace.services.trainer.service import SERVICE_NAME, TrainerServicer, http_app
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.step.step import StepInterruptedError
from headrace.wire.access.roles import Role
from headrace.wire.errors import FencedError, WaitTimeoutError
from headrace.wire.host.disk import DiskWatch
from headrace.wire.host.disk_fault import raise_noted
from headrace.wire.http import serve_http
from headrace.wire.journal import JournalRecord, JournalWriter, highest_incarnation, read_lengths
from headrace.wire.peers.rpc import SMALL_MESSAGE_BYTES, call, channel
from headrace.wire.peers.rpc import serve as serve_rpc
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import Broker
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2, orchestrator_pb2_grpc

_ACK_S = 90.0
_START_S = 30.0
_LOOK_S = 0.2
_REPORT_S = 10.0
_TURN_S = 10.0
"""The orchestrator answers within a second or two, even while engines are busy."""
log = get_logger("trainer.runtime")

BrokerMaker = Callable[[], Broker]
"""Called on the background loop."""


class Runtime:
    """gRPC, HTTP, streams, reports and publication, on one background loop."""

    def __init__(
        self, settings: TrainerSettings, publisher: Publisher, make_broker: BrokerMaker, stop: Callable[[], None]
    ) -> None:
        """`stop`: called when an operator wants the process to end."""
        self._settings = settings
        self._publisher = publisher
        self._make_broker = make_broker
        self._stop = stop
        self._background = BackgroundLoop()
        self._publication: Future[None] | None = None
        self._servicer = TrainerServicer(publisher)
        self._port = 0
        self._disk = DiskWatch(settings.run_dir, metrics.RUN_DIR_FREE.set, metrics.RUN_DIR_SIZE.set)
        self._stub: Stub | None = None
        self._inbox: Inbox | None = None
        self.doing = "loading the model"
        """What the trainer is doing, in words, for `/readyz` and status."""
        self.reporter: Reporter | None = None

    def start(self) -> None:
        """Starts the gRPC and HTTP servers; the trainer is not ready yet."""
        self._background.start()
        self._disk.start()
        self._background.call(self._serve(), _START_S, "the trainer's servers to start")

    async def _serve(self) -> None:
        settings = self._settings
        rpc = await serve_rpc(
            {SERVICE_NAME: self._servicer.add_to},
            settings.rpc_host,
            settings.grpc_port,
            ready=self._ready,
            most_bytes=SMALL_MESSAGE_BYTES,
        )
        await serve_http(http_app(self._ready, settings), settings.host, settings.http_port)
        self._port = rpc.port
        self._stub = orchestrator_pb2_grpc.OrchestratorServiceStub(
            channel(settings.orchestrator_address, Role.ORCHESTRATOR)
        )

    def _ready(self) -> str | None:
        return None if self._servicer.ledger is not None else self.doing

    def open_ledger(
        self,
        ledger: Ledger,
        records: Sequence[JournalRecord],
        *,
        version: int,
        digest: str,
        limits: TokenLimits,
        code_digest: str = "",
        given_up: Callable[[], bool] = lambda: False,
    ) -> JournaledLedger:
        """Registers this life, opens its journal segment, and starts consuming groups and reporting.

        `limits`: the policy's; `code_digest`: of the user's own code.

        Raises StepInterruptedError when `given_up()` turns true while the orchestrator is away.
        """
        settings = self._settings
        folder = RunPaths(settings.run_dir).journal
        registration = orchestrator_pb2.RegisterTrainerRequest(
            run_id=settings.run.id,
            address=settings.rpc_address(self._port),
            journaled_incarnation=highest_incarnation(folder),
            version=version,
            frontier=ledger.frontier,
            fates=wire_fates(ledger.fates()),
            boot_id=secrets.token_hex(8),
            routes=self._publisher.routes,
        )
        self.doing = f"waiting for the orchestrator at {settings.orchestrator_address} to register the trainer"
        incarnation = self._register(registration, given_up)
        journal = JournalWriter.open(
            folder,
            incarnation=incarnation,
            version=version,
            weights_digest=digest,
            read_to=read_lengths(records),
            code_digest=code_digest,
        )
        events = EventLog(settings.run_dir, "trainer", incarnation)
        config = config_digests(settings.run_dir)
        events.append("incarnation_opened", incarnation=incarnation, version=version, config=config)
        self._publisher.sender.abandoned.report = events.append
        metrics.INCARNATION.set(incarnation)
        journaled = JournaledLedger(ledger, journal, events, version=version, digest=digest)
        self._servicer.ledger = journaled
        self.reporter = Reporter(
            self._orchestrator(),
            journaled,
            registration,
            republish=self._republish,
            stop=self._stop,
            address=settings.orchestrator_address,
        )
        self._background.call(self._begin_taking(journaled, limits), _START_S, "the streams to start")
        self._background.spawn(self.reporter.run(), "reporter")
        self.doing = ""
        return journaled

    @property
    def broker_trouble(self) -> str:
        """Why no group can arrive from the broker; empty if one can."""
        return self._inbox.trouble if self._inbox is not None else ""

    def report_stopped(self) -> bool:
        """Reports that an operator's stop is done, and waits up to ten seconds for the orchestrator to receive it.

        Returns whether an operator has asked for one.
        """
        reporter = self.reporter
        if reporter is None or not reporter.stop_asked:
            return False
        reporter.stopped = True
        reporter.wake()
        end = time.monotonic() + _REPORT_S
        while not reporter.stop_reported and time.monotonic() < end:
            time.sleep(_LOOK_S / 4)
        return True

    def _register(self, registration: orchestrator_pb2.RegisterTrainerRequest, given_up: Callable[[], bool]) -> int:
        limit = self._settings.trainer.orchestrator_timeout_s
        registering = self._background.spawn(
            register(
                self._orchestrator(),
                registration,
                timeout_s=limit,
                address=self._settings.orchestrator_address,
            ),
            "registration",
        )
        while not wait([registering], timeout=_LOOK_S).done:
            if given_up():
                registering.cancel()
                raise StepInterruptedError("asked to stop before the orchestrator was there")
        return registering.result()

    async def _begin_taking(self, journaled: JournaledLedger, limits: TokenLimits) -> None:
        assert self.reporter is not None
        broker = self._make_broker()
        await broker.check(self._settings.broker.connect_timeout_s)
        self._inbox = Inbox(
            broker,
            journaled,
            run_id=self._settings.run.id,
            lease_s=self._settings.broker.lease_s,
            ended=self.reporter.wake,
            limits=limits,
            run_dir=self._settings.run_dir,
        )
        self._background.spawn(self._inbox.run(), "inbox")

    def ack(self, group_indices: Sequence[int]) -> None:
        """Acks groups that the journal has."""
        assert self._inbox is not None
        self._background.call(self._inbox.ack(group_indices), _ACK_S, "the broker to ack a batch")

    def ask_turn(self) -> str:
        """What precedes the trainer's turn on its GPUs; empty = nothing. Raises TransientError, FencedError."""
        journaled = self._servicer.ledger
        request = orchestrator_pb2.TakeTurnRequest(
            run_id=self._settings.run.id, incarnation=journaled.incarnation if journaled is not None else 0
        )
        asking = call(self._orchestrator().TakeTurn, request, timeout_s=_TURN_S, what="the orchestrator to give a turn")
        try:
            answer = self._background.call(asking, _TURN_S + _LOOK_S, "the orchestrator to give a turn")
        except FencedError as error:
            end_fenced(str(error))
            raise
        return "" if answer.granted else answer.waiting_for

    def publish(self) -> None:
        """Starts the publication of the held snapshot."""
        self._publication = self._background.spawn(self._publish(), "publication")

    @property
    def publication_limit_s(self) -> float:
        """How long a publication may take before the trainer gives up."""
        return self._settings.trainer.publish_timeout_s + _START_S

    def publication_ended(self, *, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Waits for the publication under way; False if `given_up()` turned true before."""
        limit = self.publication_limit_s
        end = time.monotonic() + limit
        while self._publication is not None and not given_up():
            if wait([self._publication], timeout=_LOOK_S).done:
                self._publication.result()
                self._publication = None
            elif time.monotonic() > end:
                raise WaitTimeoutError("the publication to end", limit)
        return self._publication is None

    async def _publish(self) -> None:
        journaled = self._servicer.ledger
        assert journaled is not None
        limit = self._settings.trainer.publish_timeout_s
        try:
            await self._publisher.publish(self._orchestrator(), journaled.incarnation, timeout_s=limit)
        except FencedError as error:
            end_fenced(str(error))

    def _republish(self) -> None:
        """Publishes again after the orchestrator lost its state, unless a publication under way retries anyway."""
        if self._publication is None or self._publication.done():
            self._background.spawn(self._publish(), "republication")

    def check(self) -> None:
        """Raises the error of a background task that has failed, or a disk's fault that a call of a peer met."""
        raise_noted()
        self._background.check()

    def stop(self) -> None:
        """Ends everything that runs beside the step."""
        self._disk.stop()
        self._background.stop()

    def close_ledger(self) -> None:
        """Closes journal and events, if this life ever opened them."""
        if self._servicer.ledger is not None:
            self._publisher.sender.abandoned.forget_log()
            self._servicer.ledger.close()

    def _orchestrator(self) -> Stub:
        assert self._stub is not None
        return self._stub
