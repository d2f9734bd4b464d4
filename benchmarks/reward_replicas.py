"""One reward replica against two, where scorers wait on an endpoint: rollouts scored a second.

    python -m benchmarks.reward_replicas --json

Replicas are processes of the reward service, the broker is a real Valkey, the judge is a process that answers chat
completions 50 to 100 ms after it was asked, however many ask. Each round scores the same groups with one replica and
with two, on streams of their own; ratios are taken in each round, medians over the rounds. Each group must come out
once, and each answer must have been judged once.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from headrace.services.reward.settings import RewardSettings
from headrace.supervisor.broker import embedded, wait_until_up
from headrace.supervisor.readiness import ReadinessClient
from headrace.wire import contracts
from headrace.wire.lifecycle import die_with_parent
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker

ROOT = Path(__file__).parents[1]
_LATENCY_S = (0.05, 0.1)
_READY_S = 30.0
_LIMIT_S = 180.0


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=128)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=8, help="requests in flight of each replica")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--judge", type=int, metavar="PORT", help="be the judge, for the benchmark's own use")
    options = parser.parse_args(arguments)
    if options.judge:
        asyncio.run(judge(options.judge))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), options))
    sys.stdout.write((json.dumps(found) if options.json else json.dumps(found, indent=1)) + "\n")


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Medians: seconds, rollouts a second, and how much faster two are."""
    port = free_port()
    seconds: dict[int, list[float]] = {1: [], 2: []}
    async with valkey(folder) as url:
        with child(folder / "judge.log", "-m", "benchmarks.reward_replicas", "--judge", str(port)):
            for round_ in range(options.rounds):
                # In turns, so that what disturbs the machine disturbs both.
                for replicas in (1, 2) if round_ % 2 == 0 else (2, 1):
                    run = f"round{round_}x{replicas}"
                    seconds[replicas].append(await score(folder, url, run, replicas, port, options))
    rollouts = options.groups * options.group_size
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "groups": options.groups,
        "rollouts": rollouts,
        "latency_ms": [1000 * bound for bound in _LATENCY_S],
        "requests_in_flight_of_a_replica": options.concurrency,
        "one_s": round(statistics.median(seconds[1]), 3),
        "two_s": round(statistics.median(seconds[2]), 3),
        "one_rollouts_a_second": round(rollouts / statistics.median(seconds[1]), 1),
        "two_rollouts_a_second": round(rollouts / statistics.median(seconds[2]), 1),
        "speedup": round(statistics.median(ratios), 3),
        "speedups": [round(ratio, 3) for ratio in ratios],
        "target": 1.8,
    }


async def score(folder: Path, url: str, run: str, replicas: int, port: int, options: argparse.Namespace) -> float:
    """Seconds from the first group on the stream to the last one scored."""
    broker = RedisBroker(url, run)
    messages = [contracts.encode(message(run, index, options.group_size)) for index in range(options.groups)]
    faces = ReadinessClient()
    try:
        with ExitStack() as stack:
            for instance in range(replicas):
                http_port = free_port()
                config = write_settings(folder, url, run, instance, http_port, port, options.concurrency)
                stack.enter_context(
                    child(config.with_suffix(".log"), "-P", "-m", "headrace.services.reward", "--config", config)
                )
                await faces.wait_until_ready(run, http_port, _READY_S)
            asked = await requests(port)
            begin = time.monotonic()
            for index, data in enumerate(messages):
                await broker.add(StreamName.ROLLOUTS, data, sequence=index + 1)
            async with asyncio.timeout(_LIMIT_S):
                while (await broker.stats(StreamName.SCORED)).length < options.groups:
                    await asyncio.sleep(0.01)
            seconds = time.monotonic() - begin
            check([contracts.decode(data) for data in await broker.live(StreamName.SCORED)], options)
            assert await requests(port) - asked == options.groups * options.group_size, "answers were judged twice"
    finally:
        await broker.close()
        await faces.close()
    return seconds


def check(ends: Sequence[contracts.Message], options: argparse.Namespace) -> None:
    """Every group was scored, once, and every rollout got what the judge said of it."""
    assert Counter(end.header.group_index for end in ends) == dict.fromkeys(range(options.groups), 1)
    for end in ends:
        assert isinstance(end.body, contracts.ScoredGroup)
        assert [score.value for score in end.body.scores] == [1.0] * options.group_size


def message(run: str, index: int, size: int) -> contracts.Message:
    """A group of short answers."""
    group_id = contracts.group_id(run, index)
    version = contracts.PolicyVersion(incarnation=1, version=0)
    rollouts = tuple(
        contracts.Rollout(
            rollout_id=contracts.rollout_id(group_id, member),
            token_ids=np.arange(64, dtype=np.int32),
            logprobs=np.full(64, -0.5, np.float32),
            finish_reason=contracts.FinishReason.STOP,
            spans=(contracts.VersionSpan(start=0, end=64, version=version, weights_digest="d"),),
            text=f"Answer {member} to question {index}: {index + member}",
        )
        for member in range(size)
    )
    prompt = contracts.PromptGroup(
        sample_id=str(index),
        token_ids=np.arange(16, dtype=np.int32),
        group_size=size,
        sampling=contracts.Sampling(max_tokens=64),
        min_version=0,
        columns={"answer": str(index)},
        text=f"Question {index}",
    )
    header = contracts.Header(
        run_id=run, purpose=contracts.Purpose.TRAIN, group_index=index, group_id=group_id, attempt=0
    )
    body = contracts.RolloutGroup(prompt=prompt, rollouts=rollouts, replica_id="rollout-0")
    return contracts.Message(header=header, body=body)


def write_settings(
    folder: Path, url: str, run: str, instance: int, http_port: int, judge_port: int, concurrency: int
) -> Path:
    """The resolved settings of one replica."""
    options = {"url": f"http://127.0.0.1:{judge_port}/v1", "model": "judge", "concurrency": concurrency}
    given: dict[str, Any] = {
        "run": {"id": run},
        "run_dir": str(folder),
        "broker": {"url": url},
        "http_port": http_port,
        "instance": str(instance),
        "reward": {
            "scorers": [{"name": "judge", "options": options | {"canaries_every": 0}}],
            "allow_hosts": [f"127.0.0.1:{judge_port}"],
            "concurrency": 4,
        },
    }
    path = folder / f"{run}-{instance}.json"
    path.write_text(RewardSettings.model_validate(given).model_dump_json())
    return path


async def judge(port: int) -> None:
    """Answers every chat completion with the best grade, after a while; `GET /count` says how many it was asked."""
    draw, count = random.Random(0), 0
    verdict = json.dumps({"reasoning": "right", "score": 10})
    message = {"role": "assistant", "content": verdict}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 500, "completion_tokens": 20}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                answer = str(count).encode()
                if head.startswith(b"POST"):
                    (length,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                    await reader.readexactly(int(length.partition(b":")[2]))
                    count += 1
                    answer = body
                    await asyncio.sleep(draw.uniform(*_LATENCY_S))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


async def requests(port: int) -> int:
    """How many requests the judge has been asked."""
    transport = httpx.AsyncHTTPTransport(retries=5)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        return int((await http.get(f"http://127.0.0.1:{port}/count")).text)


@asynccontextmanager
async def valkey(folder: Path) -> AsyncIterator[str]:
    """A broker of our own; gives its URL."""
    broker = embedded(folder, {})
    broker.make_folder()
    with child(folder / "broker.log", *broker.plan.argv, python=False):
        await wait_until_up(broker, _READY_S)
        yield broker.url
    broker.clean()


@contextmanager
def child(log: Path, *command: object, python: bool = True) -> Iterator[None]:
    """A process that ends with the block, and with us."""
    argv = [*([sys.executable] if python else []), *map(str, command)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        process = subprocess.Popen(
            argv, cwd=ROOT, env=environment, stdout=file, stderr=file, preexec_fn=die_with_parent
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def free_port() -> int:
    """A loopback port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(sys.argv[1:])
