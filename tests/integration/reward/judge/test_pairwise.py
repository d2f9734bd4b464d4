"""The pairwise judge over a real socket: win shares, position bias, quorum, canaries."""

from typing import Any

from headrace.services.reward.endpoint import client
from tests.integration.reward.endpoint.scripted import Answer, asking
from tests.integration.reward.judge.chat import blocks, judging, pairwise, said, sample

PAIRS = client.metrics.JUDGE_PAIRS


def larger(shown: dict[str, str]) -> dict[str, str]:
    a, b = (int("0" + "".join(filter(str.isdigit, shown[name]))) for name in ("ANSWER_A", "ANSWER_B"))
    return {"winner": "A" if a > b else "B" if b > a else "tie"}


async def test_scores_are_shares_of_wins_within_each_group() -> None:
    async with asking(pairwise, otherwise=judging(larger)) as (server, scorer):
        one = [sample(text, group="one") for text in ("3", "1", "2")]
        other = [sample(text, group="other", prompt="else") for text in ("7", "7", "9")]
        found = await scorer.score([one[0], other[0], one[1], other[1], one[2], other[2]])
        assert [verdict.value for verdict in found] == [1.0, 0.25, 0.0, 0.25, 0.5, 1.0]
        assert found[0].reason == "2 of 2 comparisons won" and found[0].parts == {"comparisons": 2.0}
        # 3 + 2 different pairs, both orders; equal answers are not asked about.
        assert len(server.requests) == 10


async def test_a_judge_with_position_bias_yields_only_ties() -> None:
    contradicted = PAIRS.labels("pairwise_judge", "contradicted")
    before = contradicted._value.get()
    async with asking(pairwise, otherwise=judging(lambda _: {"winner": "A"})) as (_, scorer):
        found = await scorer.score([sample("1"), sample("2"), sample("3")])
        assert [verdict.value for verdict in found] == [0.5] * 3
        assert contradicted._value.get() == before + 3


async def test_answers_are_compared_with_the_reference_if_the_options_say_so() -> None:
    async with asking(pairwise, otherwise=judging(larger), against="reference", reference="best") as (server, scorer):
        found = await scorer.score([sample("5", best="4"), sample("3", best="4"), sample("4", best=4), sample("9")])
        assert [verdict.value for verdict in found] == [1.0, 0.0, 0.5, None]
        assert "'best'" in found[3].reason and not found[3].failed
        assert all("REFERENCE" not in blocks(request) for request in server.requests)


async def test_pairs_are_bounded_and_a_sample_without_a_pair_abstains() -> None:
    async with asking(pairwise, otherwise=judging(larger), max_pairs=2) as (server, scorer):
        found = await scorer.score([sample(str(number)) for number in range(6)])
        assert len(server.requests) == 4
        assert sum(verdict.value is None and not verdict.failed for verdict in found) == 2
        (alone,) = await scorer.score([sample("1", group="alone")])
        assert alone.value is None and not alone.failed
        loose = await scorer.score([sample("1", group=""), sample("2", group="")])
        assert [verdict.value for verdict in loose] == [None, None]


async def test_without_enough_verdicts_a_sample_abstains() -> None:
    def reply(request: Any) -> Answer:
        shown = blocks(request)
        if "bad" in (shown["ANSWER_A"], shown["ANSWER_B"]):
            return said("no verdict")
        return judging(larger)(request)

    async with asking(pairwise, otherwise=reply, reasks=0) as (_, scorer):
        found = await scorer.score([sample(text) for text in ("1", "2", "3", "bad")])
        assert [verdict.value for verdict in found] == [0.0, 0.5, 1.0, None]
        assert found[3].failed and "malformed" in found[3].reason


async def test_a_canary_that_beats_the_best_answer_alarms() -> None:
    def verdict(shown: dict[str, str]) -> dict[str, str]:
        empty = [name for name in ("ANSWER_A", "ANSWER_B") if not any(map(str.isdigit, shown[name]))]
        return {"winner": empty[0][-1]} if empty else larger(shown)

    async with asking(pairwise, otherwise=judging(verdict), canaries_every=2) as (server, scorer):
        found = await scorer.score([sample("1"), sample("2")])
        await scorer.canaries.idle()
        assert [each.value for each in found] == [0.0, 1.0]
        rivals = [set(blocks(request).values()) for request in server.requests]
        assert {"1+2=", ":", "2"} in rivals
        assert scorer.alarm is not None
