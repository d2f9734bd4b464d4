r"""Scoring mathematical answers: the `math` scorer against one math-verify call a pair.

    python -m benchmarks.math_scoring [--groups 64] [--size 8] [--processes 2] [--json]

Half of the groups have a number as their answer, half a formula. A completion is a few sentences and a `\boxed{}`;
about half are right, in several spellings; some of a group say the same, as samples of one prompt do. One sample of
every second group (with groups of 8: 1 in 16) is a formula that keeps the verifier busy until it is stopped, each
another one. The peer is what math-verify's users call, `verify(parse(answer), parse(completion))` with its own
timeouts, in as many processes (a `ProcessPoolExecutor`). Both have loaded before the clock starts; processor seconds
are of everything, loading too. The verdicts must be equal where the peer's timeout did not decide. `--timeout` is ours
for one sample; the peer's are its defaults.
"""

import argparse
import asyncio
import json
import logging
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.registry import build_scorer

EXPRESSIONS: list[tuple[str, list[str], list[str]]] = [
    (r"2\sqrt{3}", [r"2\sqrt{3}", r"\sqrt{12}", r"\sqrt{3}\cdot 2"], [r"3\sqrt{2}", r"\sqrt{6}", "12"]),
    ("x^2+1", ["x^2+1", "1+x^2", "1+{x}^{2}"], ["x^2-1", "(x+1)^2", "x^2+x"]),
    (r"\frac{\pi}{4}", [r"\frac{\pi}{4}", r"\pi/4", r"\frac{2\pi}{8}"], [r"\frac{\pi}{3}", r"4\pi", r"\pi"]),
    (r"\frac{\sqrt{2}}{2}", [r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"], [r"\sqrt{2}", "2", r"\frac{1}{2}"]),
    ("e^{2}", ["e^2", "e^{2}", r"\exp(2)"], ["2e", "e", "e^3"]),
]
SETS: list[tuple[str, list[str], list[str]]] = [
    ("[0,1)", ["[0,1)", "[0, 1)", r"\left[0,1\right)"], ["[0,1]", "(0,1)", "[0,2)"]),
    ("(1,2)", ["(1,2)", r"\left(1, 2\right)", "(1, 2)"], ["(2,1)", "(1,3)", "(0,2)"]),
    (r"\{1,2\}", [r"\{1,2\}", r"\{2, 1\}", r"\{ 1, 2 \}"], [r"\{1,3\}", r"\{1\}", r"\{1,2,3\}"]),
]
"""An answer, right spellings, wrong ones."""
PEER_TIMEOUT_S = 5
"""math-verify's default, of a parse and of a verification."""
STEPS = (
    "Let me think step by step. First I write down what is given, and what is asked for.",
    "We collect the terms and see that the middle one cancels.",
    "Doing the same once more gives what we want, which is easy to check.",
)


def hostile(number: int) -> str:
    """A formula that a verifier works on until it is stopped; no two are alike."""
    kinds: list[Callable[[int], str]] = [
        lambda n: rf"9^{{9^{{9^{{{n + 3}}}}}}}",
        lambda n: rf"\sum_{{k=1}}^{{{10**7 + n}}} \frac{{1}}{{k}}",
        lambda n: rf"\int_0^1\int_0^1 \frac{{\sin({n + 1}xy)}}{{1+x^5 y^3}} dx dy",
        lambda n: rf"\frac{{1}}{{(x-{n + 1})^{{7}}(x^2+x+3)^{{9}}(y+1)^{{8}}}}+\frac{{x}}{{(y-x)^{{5}}}}",
        lambda n: rf"10^{{10^{{10}}}}+{n}",
        lambda n: rf"\prod_{{k=1}}^{{9000}} (k^k+{n + 1})",
        lambda n: rf"\sin^{{40}}(x)\cos^{{40}}(y)+\tan^{{35}}({n + 1}x+y)",
        # Nothing but the deadline ends this one.
        lambda n: rf"y = \frac{{1}}{{(x-{n + 1})^{{7}}(x^2+x+3)^{{9}}(y+1)^{{8}}}}+\frac{{x}}{{(y-x)^{{5}}}}",
    ]
    return kinds[number % len(kinds)](number)


def spellings(group: int) -> tuple[str, list[str], list[str]]:
    """A group's answer, right and wrong ways to say it."""
    if group % 4 == 1:
        return EXPRESSIONS[group // 4 % len(EXPRESSIONS)]
    if group % 4 == 3:
        return SETS[group // 4 % len(SETS)]
    number = 7 + 13 * group
    right = [f"{number}", f"{number}.0", rf"{number}\text{{ apples}}"]
    return str(number), right, [f"{number + 1}", f"{number * 10}", "3"]


def samples(groups: int, size: int) -> list[list[Sample]]:
    """The groups; the last sample of every second one is hostile, where the answer is a number or an expression."""
    made, hostiles = [], 0
    for group in range(groups):
        answer, right, wrong = spellings(group)
        members = []
        for member in range(size):
            ways = right if member % 2 else wrong
            said = ways[member * 7 % 5 % len(ways)]
            if group % 4 < 2 and member == size - 1:
                said = hostile(hostiles)
                hostiles += 1
            text = " ".join([*STEPS, rf"So the answer is $\boxed{{{said}}}$."])
            members.append(Sample(prompt="", completion=text, columns={"answer": answer}, group=str(group)))
        made.append(members)
    return made


async def ours(groups: list[list[Sample]], processes: int, timeout_s: float) -> tuple[float, list[float | None]]:
    """Seconds and verdicts."""
    scorer = build_scorer("math", {"timeout_s": timeout_s}, Context(component="math", processes=processes))
    await scorer.load()
    try:
        turns = asyncio.Semaphore(8)

        async def one(group: list[Sample]) -> list[float | None]:
            async with turns:
                return [verdict.value for verdict in await scorer.score(group)]

        begin = time.monotonic()
        verdicts = await asyncio.gather(*map(one, groups))
        seconds = time.monotonic() - begin
    finally:
        await scorer.close()
    return seconds, [value for group in verdicts for value in group]


def peer_call(pair: tuple[str, str]) -> tuple[float, float]:
    """Verdict and seconds of one pair, as math-verify's users call it."""
    from math_verify import parse, verify

    begin = time.monotonic()
    answer, completion = pair
    equal = verify(parse(f"${answer}$"), parse(completion))
    return float(equal), time.monotonic() - begin


def peer_start() -> None:
    """Loads math-verify and lets its parser see each kind of formula once."""
    logging.disable(logging.WARNING)
    for answer, right, wrong in EXPRESSIONS + SETS:
        for said in right + wrong:
            peer_call((answer, rf"$\boxed{{{said}}}$"))


def peer(groups: list[list[Sample]], processes: int) -> tuple[float, list[float], list[float]]:
    """Seconds, verdicts, and the seconds of each."""
    pairs = [(str(sample.columns["answer"]), sample.completion) for group in groups for sample in group]
    with ProcessPoolExecutor(processes, initializer=peer_start) as pool:
        list(pool.map(time.sleep, [0.5] * processes))  # All have started.
        begin = time.monotonic()
        found = list(pool.map(peer_call, pairs))
        seconds = time.monotonic() - begin
    return seconds, [equal for equal, _ in found], [taken for _, taken in found]


def cpu_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Both, one after the other, on the same groups."""
    groups = samples(options.groups, options.size)
    start = cpu_s()
    our_s, our = asyncio.run(ours(groups, options.processes, options.timeout))
    middle = cpu_s()
    peer_s, their, each = peer(groups, options.processes)
    timed_out = [taken > 0.95 * PEER_TIMEOUT_S for taken in each]
    return {
        "samples": len(our),
        "hostile": sum(group % 4 < 2 for group in range(options.groups)),
        "processes": options.processes,
        "peer_timed_out": sum(timed_out),
        "ours_s": round(our_s, 3),
        "peer_s": round(peer_s, 3),
        "ratio": round(peer_s / our_s, 2),
        "ours_cpu_s": round(middle - start, 2),
        "peer_cpu_s": round(cpu_s() - middle, 2),
        "peer_ms_of_a_pair": round(1e3 * statistics.median(each), 2),
        "right": sum(value == 1.0 for value in our),
        "abstained": sum(value is None for value in our),
        "different": differences(groups, our, their, timed_out),
    }


def differences(
    groups: list[list[Sample]], our: Sequence[float | None], their: Sequence[float], timed_out: Sequence[bool]
) -> list[str]:
    """Where the two disagree although the peer had its time."""
    every = [sample for group in groups for sample in group]
    return [
        f"{sample.columns['answer']} | {sample.completion[-60:]} | ours {one} | peer {other}"
        for sample, one, other, late in zip(every, our, their, timed_out, strict=True)
        if one != other and not late
    ]


def main() -> None:
    """Exit status 1 if verdicts differ, or the ratio is below the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=2.0, help="seconds for one sample, ours")
    parser.add_argument(
        "--peer-timeout", type=float, default=5.0, help="math-verify's default, to tell what it stopped"
    )
    parser.add_argument("--target", type=float, default=10.0)
    parser.add_argument("--json", action="store_true", help="the last line is the result")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:>18}  {value}")
    raise SystemExit(bool(result["different"]) or result["ratio"] < options.target)


if __name__ == "__main__":
    main()
