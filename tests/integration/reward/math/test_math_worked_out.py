r"""The math scorer on answers that leave the work to the verifier, and on each answer key as its own answer."""

import json
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from headrace.services.reward.scorer import Sample
from tests.integration.reward.math.test_math import SYMBOLIC, math_scorer, sample
from tests.unit.services.reward.scorers.test_math_reading import LOOKS
from tests.unit.services.reward.scorers.test_math_trees import UNEVALUATED, WORKED_OUT

pytest.importorskip("math_verify")
ROOT = Path(__file__).parents[4]
FORMULAS = (r"2\sqrt{3}", "x^2+1", r"\frac{\pi}{4}", r"\frac{\sqrt{2}}{2}", "e^{2}", "[0,1)", "(1,2)", r"\{1,2\}")


async def test_every_answer_key_of_the_repository_is_right_for_itself() -> None:
    rows = [json.loads(line) for line in (ROOT / "examples/arithmetic/prompts.jsonl").read_text().splitlines()]
    keys = {(row["prompt"], row["answer"]) for row in rows}
    keys |= {("", key) for key, *_ in [*SYMBOLIC, *LOOKS, *UNEVALUATED, *WORKED_OUT]} | {("", key) for key in FORMULAS}
    assert len(keys) > 100
    async with math_scorer() as scorer:
        own = [
            Sample(prompt=prompt, completion=key, columns={"answer": key})
            for prompt, key in keys
            if "####" not in key and "<answer>" not in key
        ]
        boxed = [
            Sample(prompt=one.prompt, completion=rf"\boxed{{{one.columns['answer']}}}", columns=one.columns)
            for one in own
        ]
        verdicts = await scorer.score([*own, *boxed])
    wrong = [one.completion for one, verdict in zip([*own, *boxed], verdicts, strict=True) if verdict.value != 1.0]
    assert not wrong


async def test_answers_that_are_not_worked_out_are_wrong_with_a_reason_and_counted() -> None:
    def counted(kind: str) -> float:
        return REGISTRY.get_sample_value("headrace_reward_math_refused_total", {"scorer": "math", "kind": kind}) or 0.0

    async with math_scorer() as scorer:
        assert (
            REGISTRY.get_sample_value("headrace_reward_math_refused_total", {"scorer": "math", "kind": "restated"})
            is not None
        )
        before = counted("unevaluated"), counted("restated")
        samples = [
            sample("42", r"\boxed{18+24}"),
            Sample(prompt="What is 17+25?", completion=r"\boxed{17+25}", columns={"answer": "42"}),
            Sample(prompt="Expand $(x+1)^2$.", completion=r"\boxed{(1+x)^2}", columns={"answer": "x^2+2x+1"}),
            sample("42", "42"),
        ]
        verdicts = await scorer.score(samples)
    assert [verdict.value for verdict in verdicts] == [0.0, 0.0, 0.0, 1.0]
    assert [dict(verdict.parts) for verdict in verdicts] == [{"unevaluated": 1}, {"restated": 1}, {"restated": 1}, {}]
    assert verdicts[0].reason == "it says 18+24, which is not worked out: unevaluated"
    assert verdicts[1].reason == "it says 17+25, which stands in the prompt: restated"
    assert (counted("unevaluated"), counted("restated")) == (before[0] + 1, before[1] + 2)
