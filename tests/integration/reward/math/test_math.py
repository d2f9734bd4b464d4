r"""The math scorer with its real workers: symbolic answers, hostile ones, broken rows, and GSM8K."""

import json
import os
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.rubric.reasoning import TAGS, answer_start
from headrace.services.reward.scorer import Sample, Scorer, Verdict
from headrace.services.reward.workers.pool import WorkerPool
from tests.reward_scorers import loaded_scorer
from tests.unit.services.reward.scorers.test_answers import PLACES

pytest.importorskip("math_verify")

SYMBOLIC: list[tuple[str, str, float]] = [
    (r"2\sqrt{3}", r"\boxed{\sqrt{12}}", 1),
    (r"2\sqrt{3}", "The answer is 2\u221a3.", 1),
    (r"2\sqrt{3}", r"so we get $2\sqrt{5}$.", 0),
    (r"\sqrt{2}", "1.5", 0),
    ("x^2+1", r"\boxed{x^2-1}", 0),
    ("x^2+2x+1", "**Answer:** 1+2x+x^2", 1),
    (r"\sin^2 x", r"\boxed{1-\cos^2 x}", 0),
    (r"\frac{1+\sqrt5}{2}", r"\boxed{\frac12(1-\sqrt5)}", 0),
    ("(x+1)(x+2)", r"\boxed{(x+2)(x+1)}", 1),
    (r"x \neq 4", r"\boxed{x \neq 4}", 1),
    (r"\frac{\pi}{4}", "#### pi/4", 1),
    (r"\frac{\pi}{4}", r"\boxed{\pi/3}", 0),
    (r"[0,1)", r"\boxed{[0, 1)}", 1),
    (r"[0,1)", r"\boxed{[0, 1]}", 0),
    (r"(-\infty,2)\cup(3,\infty)", r"\boxed{(-\infty, 2) \cup (3, \infty)}", 1),
    (r"(-\infty, 3]", "x \u2264 3", 1),
    (r"(-\infty, 3]", "x \u2264 4", 0),
    ("(1,2)", r"\boxed{(2,1)}", 0),
    (r"\{1,2\}", r"\boxed{2, 1}", 1),
    (r"\{1,2\}", r"\boxed{\{1, 3\}}", 0),
    ("1,2,3", r"\boxed{3,2,1}", 1),
    ("x=5", r"\boxed{5}", 1),
    ("5", r"\boxed{x=5}", 1),
    ("2^{10}", r"\boxed{2^{10}}", 1),
    ("120", r"\boxed{5!}", 0),
    ("5", r"\boxed{5!}", 0),
    ("6", r"the answer is $2\cdot 3$", 0),
    ("7", "10-3", 0),
    ("18", "answer = 3 * 6", 0),
    ("18", "answer = 3 * 6 = 18", 1),
    ("18", "The answer is 18 + y", 0),
    ("5", "x + 5", 0),
    ("18", r"\boxed{\{18, 19\}}", 0),
    ("3", "x=3 or x=4", 0),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1 \\ 2\end{pmatrix}}", 1),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1 \\ 3\end{pmatrix}}", 0),
    # Reals by their own size, exact numbers whatever it is, units, notations.
    ("6.02e-7x", "1e-6x", 0),
    ("2^{3000}", str(2**3000), 1),
    (r"(1, 0.0000016)", r"\boxed{(1, 0.000002)}", 0),
    (r"6\pi\text{ cm}^2", r"\boxed{6\pi\text{ cm}^2}", 1),
    (r"6\pi\text{ cm}^2", r"\boxed{6\pi\text{ m}^2}", 0),
    ("x+1", "0.0", 0),
    # What was rejected, or stands beside others.
    (r"\sqrt{2}", r"The answer is $\sqrt{3}$, not $\sqrt{2}$.", 0),
    (r"\sqrt{2}", r"The answer is $\sqrt{2}$ or $\sqrt{3}$.", 0),
    (r"\sqrt2", r"The answer is \sqrt3 and not \sqrt2", 0),
    ("x^2+1", "The answer is $x^2-1$, not $x^2+1$.", 0),
    ("1,2", "The answer is $x=1$ or $x=2$.", 1),
    ("1,2", "The answer is 1 or 3", 0),
    ("(1,2)", "The answer is (2, 1), not (1, 2).", 0),
    ("18", "#### 18-19", 0),
    ("17", "The answer is 18 - 1", 0),
    ("4", "2\u00b2", 0),
    ("2", "#### 2\u00b3", 0),
    (r"\pm 5", r"\boxed{5}", 0),
    # The question written again is no answer.
    ("1", r"\boxed{\int_0^1 2x dx}", 0),
    ("18", r"\boxed{\lim_{x\to 0} \frac{\sin(18x)}{x}}", 0),
]
HOSTILE = [
    "9**9**9**9",
    r"\boxed{9^{9^{9^{9}}}}",
    r"\boxed{10^{10^{10}}}",
    r"\boxed{1000000!}",
    r"\boxed{\binom{1000000}{500000}}",
    r"\boxed{\sum_{k=1}^{10000000} \frac{1}{k}}",
    r"\boxed{\int_0^1\int_0^1 \frac{\sin(xy)}{1+x^5 y^3} dx dy}",
    r"\boxed{y = \sin^{30}(x)\cos^{30}(y)+\tan^{25}(x+y)}",
    r"\boxed{y = \frac{1}{(x-1)^{7}(x^2+x+3)^{9}(y+1)^{8}}+\frac{x}{(y-x)^{5}}}",
    r"\boxed{" + "(" * 600 + "x" + ")" * 600 + "}",
    r"\boxed{" + "\\sqrt{" * 200 + "2" + "}" * 200 + "}",
    r"\boxed{" + "x+" * 700 + "1}",
    r"\boxed{" + "9" * 1400 + "^2}",
]
"""Most keep a verifier busy for minutes; those with `y =` are ended by its killing alone."""
HANGS = r"y = \frac{1}{(x-1)^{7}(x^2+x+3)^{9}(y+1)^{8}}+\frac{x}{(y-x)^{5}}"


def math_scorer(**options: Any) -> AbstractAsyncContextManager[Scorer]:
    return loaded_scorer("math", options, component="math", processes=2)


def sample(answer: Any, completion: str) -> Sample:
    start = answer_start(completion, TAGS, opened=False)
    return Sample(prompt="", completion=completion, columns={"answer": answer}, answer_start=start).seen("answer")


async def one(scorer: Scorer, answer: Any, completion: str) -> Verdict:
    return (await scorer.score([sample(answer, completion)]))[0]


async def test_symbolic_answers_are_equal_as_mathematics() -> None:
    async with math_scorer() as scorer:
        verdicts = await scorer.score([sample(answer, said) for answer, said, _ in SYMBOLIC])
        wrong = [
            (answer, said, verdict)
            for (answer, said, value), verdict in zip(SYMBOLIC, verdicts, strict=True)
            if verdict.value != value
        ]
        assert not wrong


ENDS = ("not worked out", "is too large", "is no formula", "no answer within 1 s")


async def test_hostile_answers_are_wrong_in_time_and_never_an_abstention(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    run_fairly = WorkerPool.run_fairly

    async def noting(pool: WorkerPool, job: Any) -> dict[str, object]:
        asked.append(job)
        return await run_fairly(pool, job)

    monkeypatch.setattr(WorkerPool, "run_fairly", noting)
    async with math_scorer(timeout_s=1.0) as scorer:
        for answer in ("18", "y=x+1"):
            for completion in HOSTILE:
                asked.clear()
                verdict = await one(scorer, answer, completion)
                assert verdict.value == 0.0, (answer, completion, verdict)
                # It was not worked out: not tried, or the deadline ended the trial.
                assert not asked or any(words in verdict.reason for words in ENDS), (answer, completion, verdict)
        assert (await one(scorer, "18", "18")).value == 1.0


async def test_equal_answers_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with math_scorer(timeout_s=60.0) as scorer:
        asked: list[Any] = []
        run = scorer._pool.run_fairly  # type: ignore[attr-defined]

        async def counted(job: Any) -> Any:
            asked.append(job)
            return await run(job)

        monkeypatch.setattr(scorer._pool, "run_fairly", counted)  # type: ignore[attr-defined]
        await scorer.score([sample(r"2\sqrt{3}", rf"say{n}: $\boxed{{\sqrt{{12}}}}$") for n in range(8)])
        await scorer.score([sample(r"2\sqrt{3}", r"\boxed{\sqrt{12}}")])
        assert len(asked) == 1


@pytest.mark.parametrize("answer", ["", r"\frac{1"])
async def test_a_row_with_an_unreadable_answer_is_a_failure_that_a_dry_run_finds(answer: Any) -> None:
    async with math_scorer() as scorer:
        verdict = await one(scorer, answer, r"\boxed{x^2}")
        assert verdict.value is None
        assert verdict.failed
        assert scorer.problem({"answer": answer})
        assert scorer.problem({"answer": r"2\sqrt{3}"}) is None
        assert "no column 'answer'" in str(scorer.problem({}))


async def test_a_verifier_that_gets_no_processor_time_fails_the_sample() -> None:
    async with math_scorer(timeout_s=1e-4) as scorer:
        verdict = await one(scorer, "x^2", r"\boxed{x + x}")
        assert verdict.failed
        assert "too busy" in verdict.reason
        assert (await one(scorer, "18", "18 dollars")).value == 1.0


def gsm8k() -> list[dict[str, str]]:
    folder = os.environ.get("HEADRACE_GSM8K")
    if folder is None:
        pytest.skip("HEADRACE_GSM8K names no folder with GSM8K's test.jsonl")
    return [json.loads(line) for line in (Path(folder) / "test.jsonl").read_text(encoding="utf-8").splitlines()]


async def test_each_gsm8k_solution_is_right_for_itself_and_wrong_for_another_question() -> None:
    rows = gsm8k()
    assert len(rows) == 1319
    numbers = [float(row["answer"].rpartition("####")[2].replace(",", "")) for row in rows]
    other = [(index + 1) % len(rows) for index in range(len(rows))]
    async with math_scorer() as scorer:
        own = await scorer.score([sample(row["answer"], row["answer"]) for row in rows])
        crossed = await scorer.score(
            [sample(row["answer"], rows[o]["answer"]) for row, o in zip(rows, other, strict=True)]
        )
    assert [verdict.value for verdict in own] == [1.0] * len(rows)
    assert [v.value for v in crossed] == [float(numbers[i] == numbers[o]) for i, o in enumerate(other)]


KEYS = [
    "A", "42", "1/2", "yes", "x^2+1", r"\sqrt{2}", r"2\sqrt{3}", r"\pi", "(1,2)", "[0,1)", r"\{1,3\}", "5 km", "3:4",
    "2516_8", "100!", r"\emptyset", "y=2x+1", r"\begin{pmatrix}1\\2\end{pmatrix}", "1e-9",
]  # fmt: skip
FRAGMENTS = [
    "\\frac", "{", "}", "\\sqrt", "[", "]", "(", ")", "1", "0.0", "-", "+", "^", "_", "x", "\\text{", "\\pi", 
    "\\infty", "!", "%",
    "\\circ", "1e999", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\cup", ",", "\\{", "or", "\n", 
    " ", "\\int", "\\sum",
    "\\lim", "\\log", "$", "\u00b2", "\u00bd", "\u0661", "\ud800", "\x00", "9" * 50, "/", "0/0", "0^0", "|", 
    "<", "\\le", "i", "'", ":", "km",
]  # fmt: skip


async def test_every_completion_gets_a_verdict() -> None:
    pick = random.Random(2)
    samples = []
    for _ in range(1500):
        said = "".join(pick.choice(FRAGMENTS) for _ in range(pick.randint(1, 9)))
        inner = pick.choice(["%s", "2+%s", "\\frac{%s}{x}", "\\sqrt{%s}", "(%s,1)"]).replace("%s", said)
        samples.append(sample(pick.choice([*KEYS, "x+1", "18"]), pick.choice(PLACES).replace("%s", inner)))
    async with math_scorer() as scorer:
        verdicts = await scorer.score(samples)
    assert [
        (one.completion, verdict) for one, verdict in zip(samples, verdicts, strict=True) if verdict.value is None
    ] == []
