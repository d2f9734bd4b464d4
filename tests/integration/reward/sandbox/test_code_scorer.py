"""The scorer `code` on real sandboxes: groups, partial scores, deadlines, outages, and the other backend."""

import asyncio
import json
from typing import Any

import pytest

from headrace.services.reward.sandbox import SandboxOutcome, slot
from headrace.services.reward.scorer import Context, ScorerDownError
from headrace.services.reward.scorers.code.scorer import CodeOptions, CodeScorer
from headrace.services.reward.scorers.registry import build_scorer
from tests.integration.reward.endpoint.scripted import Answer, Request, answer, ok, scripted
from tests.integration.reward.sandbox.conftest import Bench, end_sandbox, sample

DOUBLE = {"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["2\n", "4\n", "6\n", "8\n"]}
RIGHT = "print(int(input()) * 2)"
HALF = "n = int(input())\nprint(n * 2 if n < 3 else 0)"
FRACTIONS = "from fractions import Fraction\ndef f(n): return (k for k in (2, 1)) if n < 2 else Fraction(1, n)"
CONTEXT = Context(component="code", processes=2)


def scorer(bench: Bench, context: Context = CONTEXT, **options: object) -> CodeScorer:
    return CodeScorer(CodeOptions.model_validate(options), context, bench.boxes)


async def test_a_group_is_judged_each_by_its_own_program(bench: Bench) -> None:
    group = [sample(source, DOUBLE) for source in (RIGHT, HALF, "", "print(", "1 / 0", "import sys\nsys.exit(2)")]
    verdicts = await scorer(bench).score(group)
    assert [verdict.value for verdict in verdicts] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert (verdicts[1].parts, verdicts[0].parts) == ({"passed": 2.0, "tests": 4.0}, {"passed": 4.0, "tests": 4.0})
    assert [verdict.reason.partition(": ")[2] for verdict in verdicts[1:]] == [
        "another answer",
        "",
        "SyntaxError: '(' was never closed",
        "ZeroDivisionError: division by zero",
        "exit status 2",
    ]


async def test_a_test_over_its_time_is_the_last_and_the_rest_counts_as_failed(bench: Bench) -> None:
    hangs = "n = int(input())\nwhile n == 2: pass\nprint(n * 2)"
    (verdict,) = await scorer(bench, partial=True).score([sample(hangs, DOUBLE)])
    assert (verdict.value, verdict.failed) == (0.25, False)
    assert verdict.reason == "test 2 of 4: over its time of 1 s"


@pytest.mark.parametrize(
    ("tests", "source"),
    [
        (json.dumps(DOUBLE), RIGHT),
        (
            [{"input": "1", "output": "2", "testtype": "functional", "metadata": {"func_name": "double"}}],
            "class Solution:\n  def double(self, n: Optional[int]): return 2 * n",
        ),
        (["assert sorted(f(1)) == [1, 2]", "assert f(2) == 0.5"], FRACTIONS),
    ],
)
async def test_the_usual_forms_of_tests_are_run(bench: Bench, tests: object, source: str) -> None:
    (verdict,) = await scorer(bench).score([sample(source, tests)])
    assert verdict.value == 1.0, verdict.reason


async def test_a_broken_row_is_a_failure_that_a_dry_run_finds(bench: Bench) -> None:
    code = scorer(bench)
    (verdict,) = await code.score([sample(RIGHT, {"inputs": ["1"], "outputs": []})])
    assert (verdict.value, verdict.failed) == (None, True)
    assert code.problem({"tests": {"inputs": ["1"], "outputs": []}}) == (
        "column tests: 1 inputs and 0 outputs: each input needs its output"
    )
    assert "set options.tests" in str(code.problem({"other": 1}))
    assert code.problem({"reward_model": {"ground_truth": json.dumps(DOUBLE)}}) is None


async def test_slow_programs_score_0_and_do_not_delay_the_others(bench: Bench) -> None:
    context = Context(component="code", timeout_s=0.7, processes=2)
    slow = "import time\ntime.sleep(0.4)\nprint(int(input()) * 2)"
    group = [*[sample("while True: pass", DOUBLE)] * 3, *[sample(slow, DOUBLE)] * 3, sample(RIGHT, DOUBLE)]
    verdicts = await scorer(bench, context, total_s=0.5).score(group)
    assert [(verdict.value, verdict.failed) for verdict in verdicts] == [(0.0, False)] * 6 + [(1.0, False)]


async def test_a_program_that_the_machine_had_no_time_for_is_a_failure_and_not_a_zero(bench: Bench) -> None:
    code = scorer(bench)
    # Many times what one test of the first takes, and far less than the others need.
    code._longest_s = 0.5
    slow = "import time\ntime.sleep(0.95)\nprint(int(input()) * 2)"
    quick = {"inputs": ["1\n"], "outputs": ["2\n"]}
    verdicts = await code.score([sample(RIGHT, quick), *[sample(slow, DOUBLE)] * 6])
    assert verdicts[0].value == 1.0
    assert all(verdict.value is None and verdict.failed for verdict in verdicts[1:])
    assert "too busy" in verdicts[-1].reason
    assert (await bench.score(RIGHT, DOUBLE)).value == 1.0


async def test_where_no_sandbox_starts_the_scorer_is_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    code = build_scorer("code", {}, Context(component="code"))
    assert isinstance(code, CodeScorer)
    await code.load()
    monkeypatch.setattr(slot, "command", lambda *_, **__: ["/bin/false"])
    for pid in code._backend.pids:  # type: ignore[attr-defined]
        await end_sandbox(pid)
    with pytest.raises(ScorerDownError, match="the sandbox does not start"):
        await code.score([sample(RIGHT, DOUBLE)])
    await code.close()


def fusion_answer(outcome: SandboxOutcome) -> dict[str, object]:
    ended = {"exit": "Finished", "signal": "Finished", "time": "TimeLimitExceeded"}[outcome.ending]
    code = -outcome.code if outcome.ending == "signal" else outcome.code
    result = {
        "status": ended,
        "execution_time": outcome.wall_s,
        "return_code": None if ended != "Finished" else code,
        "stdout": outcome.output.decode(),
        "stderr": outcome.notes,
    }
    status = "Success" if ended == "Finished" and code == 0 else "Failed"
    return {"status": status, "message": "", "compile_result": None, "run_result": result, "files": {}}


def fusion(bench: Bench) -> Any:
    """Speaks the protocol, and runs what it is sent in our own sandboxes, which let it start no process."""

    def reply(request: Request) -> Answer:
        async def write(writer: asyncio.StreamWriter) -> None:
            assert request.path == "/run_code"
            assert (request.body["language"], request.body["run_timeout"]) == ("python", 1.0)
            (outcome,) = await bench.run(request.body["code"], request.body.get("stdin") or "")
            await ok(fusion_answer(outcome))(writer)

        return write

    return reply


def over_there(url: str, **options: object) -> CodeScorer:
    context = Context(component="code", processes=2, allow_hosts=("127.0.0.1",))
    made = build_scorer("code", {"url": url, **options}, context)
    assert isinstance(made, CodeScorer)
    return made


@pytest.mark.parametrize(
    ("tests", "source", "value"),
    [
        (DOUBLE, RIGHT, 1.0),
        (DOUBLE, HALF, 0.5),
        (DOUBLE, "while True: pass", 0.0),
        (DOUBLE, "import ctypes\nctypes.string_at(0)", 0.0),
        (
            {"fn_name": "f", "inputs": [[1], [2]], "outputs": [[2, "x"], [4, "y"]]},
            "def f(n):\n    print('seen')\n    return n * 2, 'x'",
            0.5,
        ),
        (["assert f({1}, 'a') == {'a': (1, 2.5)}"], "def f(s, k): return {k: (*s, 2.5)}", 1.0),
        (
            {"fn_name": "f", "inputs": [[1]], "outputs": [2]},
            "class E(int):\n    def __eq__(self, o): return True\ndef f(n): return E(5)",
            0.0,
        ),
        ({"fn_name": "f", "inputs": [[2]], "outputs": [[1, 2]]}, "def f(n): return deque(range(1, n + 1))", 1.0),
        (DOUBLE, "print('\\0' * 3_000_000)", 0.0),
    ],
)
async def test_a_sandboxfusion_service_judges_the_same(bench: Bench, tests: object, source: str, value: float) -> None:
    async with scripted(otherwise=fusion(bench)) as server:
        code = over_there(server.url, partial=True)
        await code.load()
        (there,) = await code.score([sample(source, tests)])
        (here,) = await scorer(bench, partial=True).score([sample(source, tests)])
        await code.close()
    assert (there.value, here.value) == (value, value), (there.reason, here.reason)
    assert there.parts == here.parts
    assert all(
        request.body.keys() <= {"language", "run_timeout", "memory_limit_MB", "code", "stdin"}
        for request in server.requests
    )


@pytest.mark.parametrize(
    "said",
    [
        ok({"status": "SandboxError", "message": "no room", "run_result": None}),
        ok({"status": "Success", "message": "", "run_result": {"status": "Finished", "return_code": "0"}}),
        ok(["Success"]),
        answer(422, b'{"detail": "no"}'),
    ],
)
async def test_a_service_that_fails_is_a_failure_and_not_a_zero(said: Answer) -> None:
    async with scripted(otherwise=lambda request: said) as server:
        code = over_there(server.url, retries=0)
        (verdict,) = await code.score([sample(RIGHT, DOUBLE)])
        await code.close()
    assert (verdict.value, verdict.failed) == (None, True)


async def test_an_unreachable_sandbox_service_is_down() -> None:
    async with scripted() as server:
        url = server.url
    code = over_there(url, retries=0)
    with pytest.raises(ScorerDownError):
        await code.score([sample(RIGHT, DOUBLE)])
    await code.close()
