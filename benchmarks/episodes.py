"""What Headrace adds to a turn of an episode: 200 episodes at a time, 8 turns each, contexts to 4,000 tokens.

    python -m benchmarks.episodes --json

Worker and replica are processes of their own, each episode plays in a child behind bubblewrap as in a run. Engine and
tool are emulated: a turn takes 2.0 s, a call of the tool 0.1 s, however many are under way. Of each turn, from the
rendering of its context to the tool's answer, the times of engine and tool are taken off: the rest is rendering, gRPC,
the replica's bookkeeping and the pipe to the child. Episodes begin spread over one turn, as they do in a run.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil

from headrace.model.tiny_models import END, Shape, bpe_tokenizer, write_model
from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.episode import EpisodePlayer, EpisodeState
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.services.environment.player.turns import SampledTurn, TurnClient
from headrace.services.environment.rendering.conversation import TemplateRenderer
from headrace.services.rollout.engines.protocol import Completion, GenerateRequest
from headrace.services.rollout.replica.capacity import RowPool
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.replica.turn_sampler import TurnSampler
from headrace.services.rollout.service import SERVICE_NAME
from headrace.wire.contracts import (
    EnvironmentTask,
    FinishReason,
    Header,
    PolicyVersion,
    PromptGroup,
    Purpose,
    Sampling,
    VersionSpan,
)
from headrace.wire.peers.rpc import serve
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.rendering.tokenizers import load_tokenizer
from headrace.wire.rundir.events import EventLog
from headrace.wire.v1 import message_pb2, orchestrator_pb2, rollout_pb2, rollout_pb2_grpc

ENGINE_S, TOOL_S, TURNS = 2.0, 0.1, 8
CALL = '<tool_call>{"name": "look", "arguments": {"where": "there"}}</tool_call>'
WORDS = "the box on the left has a red ball and the box on the right has none "
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}\n{{ m.content }}" + END + "{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}"
)
GAME = f'''
import asyncio


async def look(where: str) -> str:
    """Looks into boxes."""
    await asyncio.sleep({TOOL_S})
    return {WORDS!r} * LENGTH
'''
_VERSION = PolicyVersion(incarnation=1, version=0)


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--concurrent", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", choices=["replica", "worker"], help="for the benchmark's own use")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    if options.role is not None:
        die_with_parent()
        asyncio.run(replica(options) if options.role == "replica" else worker(options))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options)
    sys.stdout.write((json.dumps(found) if options.json else json.dumps(found, indent=1)) + "\n")


def measure(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Starts both processes; returns what the worker found, and the replica's CPU."""
    tokenizer = bpe_tokenizer(iter([WORDS, CALL, "user assistant tool"] * 50), vocab_size=400)
    write_model(folder, tokenizer, Shape(layers=1, hidden=8, context=8192), seed=0, chat_template=TEMPLATE)
    result = len(tokenizer.encode(WORDS).ids)
    (folder / "game.py").write_text(GAME.replace("LENGTH", str(4000 // (TURNS - 1) // result)))
    with ExitStack() as stack:
        serving = stack.enter_context(_role("replica", folder, options))
        assert serving.stdout is not None and serving.stdout.readline()
        stack.callback(serving.kill)
        playing = stack.enter_context(_role("worker", folder, options))
        stack.callback(playing.kill)
        before = sum(psutil.Process(serving.pid).cpu_times()[:2])
        said, _ = playing.communicate(timeout=1800)
        found: dict[str, float] = json.loads(said)
        spent = sum(psutil.Process(serving.pid).cpu_times()[:2]) - before
    return {**found, "replica_cpu_ms_a_turn": round(1000 * spent / found["turns"], 3)}


def _address(folder: Path) -> str:
    """A socket, as in a run on one machine."""
    return f"unix:{folder / 'rollout-0.sock'}"


def _role(name: str, folder: Path, options: argparse.Namespace) -> "subprocess.Popen[str]":
    numbers = ["--episodes", str(options.episodes), "--concurrent", str(options.concurrent)]
    command = [sys.executable, "-m", "benchmarks.episodes", "--role", name, "--folder", str(folder), *numbers]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


class EmulatedEngine:
    """Says the same call after the same time, however many ask."""

    def __init__(self, said: Sequence[int]) -> None:
        self._ids = np.array(said, np.int32)

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """One completion."""
        await asyncio.sleep(ENGINE_S)
        span = VersionSpan(start=0, end=len(self._ids), version=_VERSION, weights_digest="d")
        logprobs = np.full(len(self._ids), -0.5, np.float32)
        done = Completion(token_ids=self._ids, logprobs=logprobs, finish_reason=FinishReason.STOP, spans=(span,))
        return (done,)


class SampleService(rollout_pb2_grpc.RolloutServiceServicer):
    """The part of the rollout service that episodes call."""

    def __init__(self, sampler: TurnSampler) -> None:
        self._sampler = sampler

    async def Sample(
        self, request: rollout_pb2.SampleRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> rollout_pb2.SampleResponse:
        """As the service does it."""
        return await self._sampler.sample(request)


async def replica(options: argparse.Namespace) -> None:
    """Serves turns until it is killed."""
    tokenizer, gate = load_tokenizer(options.folder), Gate()
    engine: Any = EmulatedEngine([*tokenizer(CALL, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
    generator = GroupGenerator(
        *(engine, gate, EventLog(options.folder, "rollout-0", "a"), lambda _: ""),
        replica_id="rollout-0",
        limit=lambda share: 4,
        rows=RowPool(2 * options.concurrent, 8),
        share=1.0,
        hold_s=1.0,
    )
    gate.move(ReplicaState.PENDING_WEIGHTS)
    gate.move(ReplicaState.UPDATING)
    gate.commit(Serving(_VERSION, "d"))
    service = SampleService(TurnSampler(engine, gate, generator, replica_id="rollout-0"))
    add = rollout_pb2_grpc.add_RolloutServiceServicer_to_server
    await serve({SERVICE_NAME: lambda made: add(service, made)}, _address(options.folder), 0)
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


class TimedPlayer(EpisodePlayer):
    """Notes, of each turn, what is neither the engine's nor the tool's time. Seconds."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.added: list[float] = []
        self.contexts: list[int] = []
        self._begun: dict[str, float] = {}
        self._engine: dict[str, float] = {}

    def _request(self, *given: Any) -> rollout_pb2.SampleRequest | None:
        state: EpisodeState = given[-1]
        self._begun[state.rollout_id] = time.monotonic()
        return super()._request(*given)

    async def _turn(self, request: rollout_pb2.SampleRequest, state: EpisodeState) -> SampledTurn:
        said = await super()._turn(request, state)
        self._engine[state.rollout_id] = said.engine_s
        self.contexts.append(len(said.turn.context_ids))
        return said

    async def _step(self, child: ChildProcess, state: EpisodeState) -> bool:
        done = await super()._step(child, state)
        passed = time.monotonic() - self._begun[state.rollout_id]
        tool_s = state.record[-1]["seconds"]
        assert isinstance(tool_s, float)
        self.added.append(passed - self._engine[state.rollout_id] - tool_s)
        return done


async def worker(options: argparse.Namespace) -> None:
    """Plays all episodes; prints what was measured."""
    directory = ReplicaDirectory()
    place = orchestrator_pb2.ReplicaPlace(
        replica_id="rollout-0", address=_address(options.folder), takes=True, free_rows=2 * options.concurrent,
        version=message_pb2.PolicyVersion(incarnation=1, version=0),
    )  # fmt: skip
    directory.update([place])
    limits = EpisodeLimits(max_turns=TURNS, max_turn_tokens=0, context_length=8000, episode_s=600, turn_s=60, tool_s=60)
    turns = TurnClient(directory)
    player = TimedPlayer(TemplateRenderer(load_tokenizer(options.folder)), turns, limits)
    config = ChildConfig(tools=("game:look",), path=options.folder, start_s=600)
    pool = ChildPool(lambda: ChildProcess(config), options.concurrent)
    me, resident = psutil.Process(), []
    await warm(pool, options.concurrent)
    free = asyncio.Semaphore(options.concurrent)
    begin, cpu = time.monotonic(), sum(me.cpu_times()[:2])

    async def play(index: int) -> None:
        async with free:
            await asyncio.sleep((ENGINE_S + TOOL_S) * index / options.concurrent if index < options.concurrent else 0)
            async with pool.child() as child:
                rollout = await player.play(child, _group(), _header(index), 0)
            assert rollout.finish_reason is FinishReason.TURN_LIMIT, rollout
            resident.append(me.memory_info().rss / 2**20)

    await asyncio.gather(*(play(index) for index in range(options.episodes)))
    seconds, cpu = time.monotonic() - begin, sum(me.cpu_times()[:2]) - cpu
    await pool.close()
    await turns.close()
    added = sorted(1000 * one for one in player.added)
    found = {
        "turns": len(added),
        "longest_context": max(player.contexts),
        "added_ms_median": statistics.median(added),
        "added_ms_p95": added[int(0.95 * len(added))],
        "added_ms_max": added[-1],
        "worker_cpu_ms_a_turn": 1000 * cpu / len(added),
        "seconds": seconds,
        "worker_mib_after_200": resident[min(200, len(resident)) - 1],
        "worker_mib_at_the_end": resident[-1],
    }
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in found.items()}) + "\n")


async def warm(pool: ChildPool, count: int) -> None:
    """Starts all children, eight at a time."""
    few, all_there, there = asyncio.Semaphore(8), asyncio.Event(), 0

    async def hold() -> None:
        nonlocal there
        async with few:
            entered = pool.child()
            await entered.__aenter__()
        there += 1
        if there == count:
            all_there.set()
        await all_there.wait()
        await entered.__aexit__(None, None, None)

    await asyncio.gather(*(hold() for _ in range(count)))


def _group() -> PromptGroup:
    return PromptGroup(
        sample_id="row",
        token_ids=np.empty(0, np.int32),
        group_size=1,
        sampling=Sampling(max_tokens=4000, seed=7),
        min_version=0,
        environment=EnvironmentTask(name="look", digest="d", task_json=json.dumps({"prompt": "Where is it?"})),
    )


def _header(index: int) -> Header:
    return Header(run_id="benchmark", purpose=Purpose.TRAIN, group_index=index, group_id=f"benchmark/g{index:08d}")


if __name__ == "__main__":
    main(sys.argv[1:])
