"""Samples turns of episodes with a model folder, on the torch engine, without a run."""

import asyncio
import functools
import json
import sys

import grpc

from headrace.services.rollout.app import make_engine
from headrace.services.rollout.chat.settings import FolderSettings
from headrace.services.rollout.chat_here import INSTALL_S, open_gate, weights_of
from headrace.services.rollout.replica.capacity import RowPool
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.turn_sampler import TurnSampler
from headrace.services.rollout.service import SERVICE_NAME
from headrace.wire.contracts import PolicyVersion
from headrace.wire.peers.rpc import serve
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import rollout_pb2 as pb

_CLOSE_S = 5.0
_NAME = "here"


def add_sample(sampler: TurnSampler, server: grpc.aio.Server) -> None:
    """Serves `RolloutService.Sample` alone."""

    async def sample(request: pb.SampleRequest, context: object) -> pb.SampleResponse:
        return await sampler.sample(request)

    handler = grpc.unary_unary_rpc_method_handler(
        sample,
        request_deserializer=pb.SampleRequest.FromString,
        response_serializer=pb.SampleResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, {"Sample": handler}),))


async def serve_turns(settings: FolderSettings) -> int:
    """Writes `{"port": ...}` as soon as it samples; runs until SIGTERM. Raises ConfigError for an unusable folder."""
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    version = PolicyVersion(incarnation=0, version=settings.version)
    engine = make_engine(settings)
    try:
        await engine.adopt(dict(weights_of(settings.model.path)), version, INSTALL_S)
        gate = open_gate(version)
        generator = GroupGenerator(
            engine, gate, EventLog(settings.run_dir, _NAME, 0), lambda completion: "",
            replica_id=_NAME, limit=lambda share: 0, rows=RowPool(1, 1), share=1.0, hold_s=0.0,
        )  # fmt: skip
        sampler = TurnSampler(engine, gate, generator, replica_id=_NAME)
        server = await serve({SERVICE_NAME: functools.partial(add_sample, sampler)}, "127.0.0.1", 0)
        sys.stdout.write(json.dumps({"port": server.port}) + "\n")
        sys.stdout.flush()
        await shutdown.event.wait()
        await server.stop()
    finally:
        await engine.close(_CLOSE_S)
    return 0
