"""What an episode needs: a tokenizer with a chat template, replicas by script at real gRPC, and children."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from headrace.model.tiny_models import END, Shape, bpe_tokenizer, write_model
from headrace.services.environment.agent.player import AgentPlayer
from headrace.services.environment.agent.process import AgentConfig, AgentProcess
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.episode import EpisodePlayer
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.choice import conversation_renderer
from headrace.services.environment.taskset.frames import TasksetConfig
from headrace.services.environment.taskset.player import TasksetPlayer
from headrace.services.environment.taskset.process import TasksetProcess
from headrace.services.rollout.service import SERVICE_NAME
from headrace.wire.contracts import (
    EnvironmentTask,
    FinishReason,
    PolicyVersion,
    PromptGroup,
    Rollout,
    Sampling,
    VersionSpan,
)
from headrace.wire.contracts.arrays import floats_to_bytes, ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.codec import FINISH_TO_PB, SPAN
from headrace.wire.errors import ExhaustedError, TransientError
from headrace.wire.peers.rpc import serve
from headrace.wire.rendering.tokenizers import load_tokenizer
from headrace.wire.v1 import message_pb2, rollout_pb2_grpc
from headrace.wire.v1 import orchestrator_pb2 as orchestrator
from headrace.wire.v1 import rollout_pb2 as pb
from tests import builders
from tests.integration.environment.hosted import HostedChild
from tests.integration.environment.test_child import CONFIG

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
FORGETFUL = TEMPLATE.replace(
    "{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else m.content.split('</think>')[-1] }}"
)
"""Drops the thoughts of earlier turns."""
LIMITS = EpisodeLimits(max_turns=4, max_turn_tokens=0, context_length=4000, episode_s=300.0, turn_s=100.0, tool_s=100.0)


def model_folder(folder: Path, template: str = TEMPLATE) -> Path:
    """A tiny model with byte-level tokens and a chat template."""
    tokenizer = bpe_tokenizer(iter(["[user]what is 12 + 34?[assistant]it is 46"]), vocab_size=300)
    write_model(folder, tokenizer, Shape(layers=1, hidden=8, context=4096), seed=0)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return folder


class ScriptedReplica(rollout_pb2_grpc.RolloutServiceServicer):
    """Says what `says` makes of the context's text; None = it is full. Logprobs are functions of place and turn."""

    def __init__(self, name: str, tokenizer: Any, says: Callable[[str, pb.SampleRequest], str | None]) -> None:
        self.name, self.tokenizer, self.says = name, tokenizer, says
        self.asked: list[pb.SampleRequest] = []
        self.version = PolicyVersion(incarnation=1, version=0)
        self.broken = self.late = False
        self.cached: Callable[[pb.SampleRequest], int] | None = None
        """Tokens of the context that it reports as kept; None = it reports none."""
        self.hold: asyncio.Event | None = None

    def add_to(self, server: grpc.aio.Server) -> None:
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(self, server)

    async def Sample(self, request: pb.SampleRequest, context: Any) -> pb.SampleResponse:
        self.asked.append(request)
        if self.hold is not None:
            await self.hold.wait()
        if self.broken:
            raise TransientError("the engine is gone")
        if self.late:
            return pb.SampleResponse(finish_reason=FINISH_TO_PB[FinishReason.TIME], replica_id=self.name)
        text = self.says(self.tokenizer.decode(ids_from_bytes(request.context_ids).tolist()), request)
        if text is None:
            raise ExhaustedError(f"{self.name} has no free row")
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"] + [self.tokenizer.eos_token_id]
        reason = FinishReason.STOP
        if len(ids) > request.sampling.max_tokens:
            ids, reason = ids[: request.sampling.max_tokens], FinishReason.LENGTH
        span = VersionSpan(start=0, end=len(ids), version=self.version, weights_digest="d")
        return pb.SampleResponse(
            token_ids=ids_to_bytes(np.array(ids, np.int32)),
            logprobs=floats_to_bytes(-0.01 * np.arange(1, len(ids) + 1, dtype=np.float32) - request.turn),
            finish_reason=FINISH_TO_PB[reason],
            spans=[SPAN.to_pb(span)],
            replica_id=self.name,
            engine_s=0.001,
            cached_tokens=None if self.cached is None else self.cached(request),
        )


@dataclass
class Stage:
    """Everything around a player."""

    tokenizer: Any
    replicas: dict[str, ScriptedReplica]
    directory: ReplicaDirectory
    pool: Any
    player: Any
    places: dict[str, orchestrator.ReplicaPlace] = field(default_factory=dict)
    begun: list[tuple[Any, ...]] = field(default_factory=list)
    """What an agent's player reported of each episode's segments."""

    def place(self, name: str, **changes: Any) -> None:
        """Changes what the orchestrator says of a replica."""
        version = message_pb2.PolicyVersion(incarnation=1, version=changes.pop("version", 0))
        known = self.places[name]
        fields = {"takes": known.takes, "free_rows": known.free_rows} | changes
        self.places[name] = orchestrator.ReplicaPlace(replica_id=name, address=known.address, version=version, **fields)
        self.directory.update(list(self.places.values()))

    def remove(self, name: str) -> None:
        """Takes a replica from the orchestrator's list."""
        del self.places[name]
        self.directory.update(list(self.places.values()))


@asynccontextmanager
async def stage(
    folder: Path,
    says: Callable[[str, pb.SampleRequest], str | None],
    *,
    replicas: int = 1,
    template: str = TEMPLATE,
    model: Callable[[Path, str], Path] = model_folder,
    renderer: str = "template",
    slots: int = 4,
    limits: dict[str, Any] | None = None,
    agent: AgentConfig | None = None,
    taskset: TasksetConfig | None = None,
    isolated: bool = False,
    **config: Any,
) -> AsyncIterator[Stage]:
    """Replicas that serve version 0, and children of an environment, or of a `taskset`, or sandboxes of an `agent`.

    An environment is hosted in this process unless it is `isolated`.
    """
    tokenizer = load_tokenizer(model(folder / "model", template))
    made = {f"rollout-{n}": ScriptedReplica(f"rollout-{n}", tokenizer, says) for n in range(replicas)}
    directory = ReplicaDirectory()
    turns = TurnClient(directory)
    made_renderer, bounds = conversation_renderer(renderer, tokenizer), replace(LIMITS, **(limits or {}))
    found = Stage(tokenizer, made, directory, None, None)
    if taskset is not None:
        given = replace(taskset, context_length=bounds.context_length)
        given = replace(given, max_turns=bounds.max_turns)
        found.pool = ChildPool(lambda: TasksetProcess(replace(CONFIG, **{"network": False, **config}), given), slots)
        found.player = TasksetPlayer(made_renderer, turns, bounds, lambda *told: found.begun.append(told))
    elif agent is None:
        kind = ChildProcess if isolated else HostedChild
        found.pool = ChildPool(lambda: kind(replace(CONFIG, **config)), slots)
        found.player = EpisodePlayer(made_renderer, turns, bounds)
    else:
        found.pool = ChildPool(lambda: AgentProcess(replace(CONFIG, **{"network": False, **config}), agent), slots)
        found.player = AgentPlayer(made_renderer, turns, bounds, lambda *told: found.begun.append(told))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(found.pool.close)
        stack.push_async_callback(turns.close)
        for name, replica in made.items():
            server = await serve({SERVICE_NAME: replica.add_to}, "127.0.0.1", 0)
            stack.push_async_callback(server.stop, 0)
            found.places[name] = orchestrator.ReplicaPlace(address=f"127.0.0.1:{server.port}", takes=True, free_rows=8)
            found.place(name)
        yield found


def played(task: dict[str, Any], *, size: int = 1, min_version: int = 0, **sampling: Any) -> PromptGroup:
    """A group of an environment."""
    return PromptGroup(
        sample_id="row",
        token_ids=np.empty(0, np.int32),
        group_size=size,
        sampling=Sampling(**{"max_tokens": 500, "seed": 7} | sampling),
        min_version=min_version,
        environment=EnvironmentTask(name="games", digest="d", task_json=json.dumps(task)),
    )


async def play(it: Stage, prompt: PromptGroup, index: int = 0, attempt: int = 0, *, last: bool = True) -> Rollout:
    """Plays one rollout of the group of index 3 in a child of the stage."""
    async with it.pool.child() as child:
        rollout: Rollout = await it.player.play(child, prompt, builders.header(3, attempt=attempt), index, last=last)
    return rollout
