"""Lives of a real trainer process, with a small orchestrator on loopback gRPC and groups made from their index."""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

from headrace.services.trainer.durability.ledger import common_score
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.contracts import DropReason, Header, Message, Purpose, Tombstone, encode, group_id
from headrace.wire.journal import BatchRecord, read_journal
from headrace.wire.peers.rpc import serve
from headrace.wire.process import failpoints
from headrace.wire.streams import StreamName
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import orchestrator_pb2_grpc
from tests.armed import arm
from tests.unit.services.trainer.builders import scored_group, tiny_folder

GROUPS = 3
DROPPED = (4, 9)
"""These indices come as tombstones, in every life."""


class SmallOrchestrator(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Numbers lives, remembers fates, and notes what is published."""

    def __init__(self, *, fence_at=None, reports_alone=0, stop_in_publication=None):
        self.incarnation = 0
        self.fates = {}
        self.published = []
        self.pending_at_publication = []
        self.fence_at = fence_at
        self.reports_alone = reports_alone
        """The first so many reports are answered with `no replica lives`."""
        self.stopped = False
        self.stop_in_publication = stop_in_publication
        """The publication of this version does not end; the trainer is stopped while it waits for that."""

    def add_to(self, server):
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    def _take(self, fates):
        for fate in fates:
            old = self.fates.setdefault(fate.group_index, (fate.step, fate.reason))
            assert old == (fate.step, fate.reason), f"group {fate.group_index} ended twice"

    async def RegisterTrainer(self, request, context):
        self.incarnation = max(self.incarnation, request.journaled_incarnation) + 1
        self._take(request.fates)
        return pb.RegisterTrainerResponse(incarnation=self.incarnation)

    async def ReportProgress(self, request, context):
        if request.incarnation > self.incarnation:
            return pb.ReportProgressResponse(unknown=True)
        self._take(request.fates)
        waits = request.waiting_for.startswith("the publication before")
        if self.stop_in_publication is not None and waits and not self.stopped:
            self.stopped = True  # A second signal would stop it at once.
            os.kill(os.getpid(), signal.SIGTERM)
        self.reports_alone -= 1
        fenced = self.fence_at is not None and request.version >= self.fence_at
        trained = [index for index, (step, _) in self.fates.items() if step]
        complete = len(trained) == GROUPS * request.version
        return pb.ReportProgressResponse(fenced=fenced, evaluating=not complete, replicas=int(self.reports_alone < 0))

    async def Publish(self, request, context):
        self.published.append(request)
        if request.version == self.stop_in_publication:
            await asyncio.Event().wait()
        return pb.PublishResponse()


class Server:
    """Runs the servicer in a thread of its own."""

    def __init__(self, servicer):
        self.servicer = servicer
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        name = pb.DESCRIPTOR.services_by_name["OrchestratorService"].full_name
        self._rpc = self._run(serve({name: servicer.add_to}, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._rpc.port}"

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def close(self):
        self._run(self._rpc.stop(0.1))
        self._loop.call_soon_threadsafe(self._loop.stop)


def is_flat(index):
    """Whether dynamic sampling discards the group: its rewards, which are a function of its index, are all one."""
    return common_score(scored_group(index)) is not None


async def feed(broker, servicer, *, staleness=0, stop_at=None, reverse=True, dynamic=False):
    """On each publication the groups of one more batch, those of the highest index first."""
    fed = set()
    seen = -1
    while True:
        await asyncio.sleep(0.005)
        if not servicer.published or servicer.published[-1].version == seen:
            continue
        request = servicer.published[-1]
        seen = request.version
        servicer.pending_at_publication.append((await broker.stats(StreamName.SCORED)).pending)
        if stop_at is not None and request.version >= stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        fresh = [index for index in range(1000) if index not in servicer.fates and index not in fed]
        count = GROUPS if fed else GROUPS * (staleness + 1)
        last = [index for index in fresh if index not in DROPPED and not (dynamic and is_flat(index))][count - 1]
        batch = [index for index in fresh if index <= last]
        for index in sorted(batch, reverse=reverse):
            fed.add(index)
            entry = message(index, request)
            broker.put(StreamName.SCORED, entry)
            broker.put(StreamName.SCORED, entry)  # A zombie's late second entry.


def message(index, request):
    """The entry of a group that was sampled from what `request` published."""
    header = Header(run_id="run", purpose=Purpose.TRAIN, group_index=index, group_id=group_id("run", index))
    if index in DROPPED:
        return encode(Message(header=header, body=Tombstone(reason=DropReason.SCORER_FAILED)))
    scored = scored_group(
        index,
        version=request.version,
        incarnation=request.incarnation,
        digest=request.plan.weights_digest,
    )
    return encode(Message(header=header, body=scored))


def settings_for(
    tmp_path,
    *,
    steps=6,
    staleness=0,
    stale="wait",
    address="127.0.0.1:1",
    algorithm=None,
    **trainer,
):
    model = tmp_path / "model"
    if not model.exists():
        tiny_folder(model)
    return TrainerSettings.model_validate(
        {
            "run": {"id": "run", "max_steps": steps, "max_staleness": staleness, "stale": stale},
            "model": {"path": str(model)},
            "batch": {"groups": GROUPS, "group_size": 4},
            "algorithm": algorithm or {},
            "trainer": {
                "learning_rate": 1e-3,
                "warmup_steps": 2,
                "schedule": "cosine",
                "checkpoint_every": 2,
                "batch_timeout_s": 20.0,
                "orchestrator_timeout_s": 10.0,
                **trainer,
            },
            "run_dir": str(tmp_path / "run"),
            "orchestrator_address": address,
        }
    )


def one_life(values, stop_at, staleness, points, orchestrator):
    """What a trainer process does here; its streams begin empty each time, as after the loss of the broker."""
    from headrace.services.trainer.distributed.stop import StopSignal
    from headrace.services.trainer.stages.rl import RlStage
    from headrace.wire.telemetry.logs import configure_logging
    from tests.memory_broker import MemoryBroker

    with (Path(values["run_dir"]).parent / "trainer.log").open("a") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    absent = orchestrator.pop("absent", False)
    servicer = SmallOrchestrator(**orchestrator)
    address = "127.0.0.1:9" if absent else Server(servicer).address
    settings = TrainerSettings.model_validate({**values, "orchestrator_address": address})
    configure_logging("trainer", settings.run.id)
    failpoints.install("trainer", points)

    def make_broker():
        broker = MemoryBroker()
        make_broker.task = asyncio.get_running_loop().create_task(
            feed(
                broker,
                servicer,
                staleness=staleness,
                stop_at=stop_at,
                dynamic=settings.algorithm.dynamic_sampling,
            )
        )
        return broker

    stop = StopSignal()
    stop.install()
    stage = RlStage(settings, make_broker, stop)
    if absent and stop_at is not None:
        threading.Thread(target=stop_while_it_waits, args=(stage,), daemon=True).start()
    stage.run()
    (settings.run_dir.parent / "pending.json").write_text(json.dumps(servicer.pending_at_publication))
    sys.exit(0)


def stop_while_it_waits(stage):
    """For the orchestrator that is absent."""
    while "orchestrator" not in stage._life.runtime.doing:
        time.sleep(0.05)
    time.sleep(0.5)  # It is in the middle of its wait.
    os.kill(os.getpid(), signal.SIGTERM)


def live(settings, *, stop_at=None, fail_at="", **orchestrator):
    """Runs one life in a process of its own; returns its exit code (negative: the signal that killed it).

    `fail_at`: `after_journal:3` kills it at that point of step 3, which no former life has journaled; a point without
    a step the first time that it is reached.
    """
    points = ""
    if fail_at:
        point, _, step = fail_at.partition(":")
        journaled = [
            item.record.step
            for item in read_journal(settings.run_dir / "journal")
            if isinstance(item.record, BatchRecord)
        ]
        passes = int(step) - 1 - max(journaled, default=0) if step else 0
        points = arm(settings.run_dir.parent / "failpoints", f"trainer.step.{point}", passes)[failpoints.VARIABLE]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.trainer.preload", "pandas"])
    process = context.Process(
        target=one_life,
        args=(settings.model_dump(mode="json"), stop_at, settings.run.max_staleness, points, orchestrator),
    )
    process.start()
    process.join(150)
    assert process.exitcode is not None, "the life did not end"
    return process.exitcode


def exported_sha256(settings):
    """Hash of the last life's export, and proof that the folder holds it."""
    import torch
    from transformers import AutoModelForCausalLM

    from headrace.wire.rundir.events import read_events
    from headrace.wire.weights import weights_sha256

    events = [event for event in read_events(settings.run_dir) if event["event"] == "exported"]
    model = AutoModelForCausalLM.from_pretrained(settings.run_dir / "export", dtype=torch.float32)
    assert weights_sha256(model.named_parameters()) == events[-1]["weights_sha256"]
    return events[-1]["weights_sha256"]


def metrics_lines(settings):
    return [json.loads(line) for line in (settings.run_dir / "metrics.jsonl").read_text().splitlines()]
