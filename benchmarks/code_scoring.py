"""How fast programs are scored, beside a subprocess a test.

    python -m benchmarks.code_scoring --json

512 programs with several small tests each; 1 in 16 hangs, half of those in a busy loop, half asleep. On our side the
scorer `code`, isolation and all, on warm sandboxes. Beside it, without any isolation, one `python -I -S` a test, with
the same time-out a test, as many at a time as there are sandboxes (by default, as there are cores), and the same
comparison of outputs. It is measured twice: `every_test` runs each test of each program, as one subprocess a test does;
`first_failure` leaves a program at its first failed test, a trick of ours that it may have too. One more of ours it has
not: a test that goes to sleep for longer than it has is over at once. `--hang-every 0` measures without any hang, where
neither trick counts. The verdicts must be equal.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.code.blocks import find_program
from headrace.services.reward.scorers.code.scorer import build
from headrace.services.reward.scorers.code.tests import read_suite

HANGS = ("while True:\n    pass\n", "import time\ntime.sleep(3600)\n")
RIGHT = {
    "sum": "n = int(input())\nprint(sum(map(int, input().split())))\n",
    "primes": (
        "n, *_ = map(int, open(0).read().split())\n"
        "print(sum(all(k % d for d in range(2, int(k ** 0.5) + 1)) for k in range(2, n + 1)))\n"
    ),
    "words": (
        "import sys\nfrom collections import Counter\nwords = sys.stdin.read().split()\n"
        "for word, count in sorted(Counter(words).items()):\n    print(word, count)\n"
    ),
    "path": (
        "from collections import deque\nn, m = map(int, input().split())\nnear = [[] for _ in range(n)]\n"
        "for _ in range(m):\n    a, b = map(int, input().split())\n    near[a].append(b)\n    near[b].append(a)\n"
        "far = {0: 0}\nqueue = deque([0])\nwhile queue:\n    at = queue.popleft()\n    for to in near[at]:\n"
        "        if to not in far:\n            far[to] = far[at] + 1\n            queue.append(to)\n"
        "print(max(far.values()))\n"
    ),
}
WRONG = "print(-1)\n"


@dataclass(frozen=True)
class Spent:
    """Time spent in one pass over all programs."""

    wall_s: float
    cpu_s: float
    scores: tuple[float | None, ...]


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--tests", type=int, default=10)
    parser.add_argument("--hang-every", type=int, default=16)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    samples = make_samples(options.samples, options.tests, options.hang_every)
    result = measure(samples, options.workers, options.timeout, options.rounds)
    result |= {"samples": options.samples, "tests": options.tests, "workers": options.workers}
    result["hang_every"] = options.hang_every
    sys.stdout.write((json.dumps(result) if options.json else json.dumps(result, indent=1)) + "\n")


def make_samples(count: int, tests: int, hang_every: int) -> list[Sample]:
    """Every `hang_every`th hangs (0: none); of the others, every 8th is wrong."""
    problems = list(RIGHT)
    made = []
    for number in range(count):
        name = problems[number % len(problems)]
        source = WRONG if number % 8 == 3 else RIGHT[name]
        if hang_every and number % hang_every == 5 % hang_every:
            source = HANGS[number // hang_every % 2]
        cases = [_case(name, seed) for seed in range(tests)]
        column = {"inputs": [given for given, _ in cases], "outputs": [wanted for _, wanted in cases]}
        completion = f"Here it is:\n```python\n{source}```\n"
        made.append(Sample(prompt="", completion=completion, columns={"tests": column}, name=str(number)))
    return made


def _case(name: str, seed: int) -> tuple[str, str]:
    numbers = [(seed * 7919 + k * 104729) % 1000 for k in range(20)]
    if name == "sum":
        return f"20\n{' '.join(map(str, numbers))}\n", f"{sum(numbers)}\n"
    if name == "primes":
        n = 100 + seed * 10
        return f"{n}\n", f"{sum(all(k % d for d in range(2, k)) for k in range(2, n + 1))}\n"
    if name == "words":
        words = [f"w{number % 7}" for number in numbers]
        return " ".join(words), "\n".join(f"{word} {words.count(word)}" for word in sorted(set(words)))
    n = 10 + seed
    return f"{n} {n - 1}\n" + "".join(f"{k} {k + 1}\n" for k in range(n - 1)), f"{n - 1}\n"


def measure(samples: Sequence[Sample], workers: int, timeout_s: float, rounds: int) -> dict[str, object]:
    """Medians of seconds over the rounds, and ratios of them."""
    ours, every, first = [], [], []
    for _ in range(rounds):
        ours.append(asyncio.run(_sandboxed(samples, workers, timeout_s)))
        every.append(_subprocesses(samples, workers, timeout_s, every_test=True))
        first.append(_subprocesses(samples, workers, timeout_s, every_test=False))
    scores = {spent.scores for spent in (*ours, *every, *first)}
    if len(scores) > 1:
        raise SystemExit("the verdicts differ")
    return {
        "sandbox": _summary(ours),
        "every_test": _summary(every) | _ratios(every, ours),
        "first_failure": _summary(first) | _ratios(first, ours),
        "passed": sum(score == 1.0 for score in ours[0].scores),
    }


def _summary(found: Sequence[Spent]) -> dict[str, float]:
    return {
        "wall_s": round(statistics.median(spent.wall_s for spent in found), 3),
        "cpu_s": round(statistics.median(spent.cpu_s for spent in found), 3),
    }


def _ratios(others: Sequence[Spent], ours: Sequence[Spent]) -> dict[str, float]:
    pairs = list(zip(others, ours, strict=True))
    return {
        "times_wall": round(statistics.median(other.wall_s / our.wall_s for other, our in pairs), 2),
        "times_cpu": round(statistics.median(other.cpu_s / our.cpu_s for other, our in pairs), 2),
    }


async def _sandboxed(samples: Sequence[Sample], workers: int, timeout_s: float) -> Spent:
    """CPU time of this process, and of the sandboxes and all that has ended in them."""
    context = Context(component="code", timeout_s=3600, processes=workers)
    scorer = build({"timeout_s": timeout_s}, context)
    await scorer.load()
    before, begin = _cpu_s() + _sandboxes_cpu_s(), time.perf_counter()
    verdicts = await scorer.score(samples)
    wall_s, cpu_s = time.perf_counter() - begin, _cpu_s() + _sandboxes_cpu_s() - before
    await scorer.close()
    return Spent(wall_s, cpu_s, tuple(verdict.value for verdict in verdicts))


def _subprocesses(samples: Sequence[Sample], workers: int, timeout_s: float, *, every_test: bool) -> Spent:
    before, begin = _cpu_s(), time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        scores = tuple(pool.map(lambda sample: _score(sample, timeout_s, every_test), samples))
    return Spent(time.perf_counter() - begin, _cpu_s() - before, scores)


def _score(sample: Sample, timeout_s: float, every_test: bool) -> float:
    source = find_program(sample.completion)
    passed = True
    for test in read_suite(sample.columns["tests"], {}).tests:
        try:
            command = [sys.executable, "-I", "-S", "-c", source]
            done = subprocess.run(command, input=test.given, capture_output=True, timeout=timeout_s, check=False)
            passed &= done.returncode == 0 and test.answer.accepts(done.stdout, 1e-6)
        except subprocess.TimeoutExpired:
            passed = False
        if not (passed or every_test):
            break
    return float(passed)


def _sandboxes_cpu_s() -> float:
    """Processor seconds of the processes below this one, and of their children that have ended."""
    parents, ticks = {os.getpid()}, 0
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It may just have ended.
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    while below := {pid for pid, (parent, _) in found.items() if parent in parents} - parents:
        ticks += sum(found[pid][1] for pid in below)
        parents |= below
    return ticks / os.sysconf("SC_CLK_TCK")


def _cpu_s() -> float:
    """Processor seconds of this process and of all its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main(sys.argv[1:])
