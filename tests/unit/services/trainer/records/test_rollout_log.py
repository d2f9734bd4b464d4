import json
from dataclasses import replace

import numpy as np
from pyarrow import parquet

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.records.rollout_log import write_rollouts
from headrace.services.trainer.step.step import StepOutcome
from headrace.wire.contracts import Message, Score, ScoredGroup, decode, encode
from headrace.wire.rundir.episode_column import episode_view
from tests import builders


def outcome(advantages, token_advantages=()):
    return StepOutcome(metrics={}, advantages=tuple(advantages), token_advantages=tuple(token_advantages))


def ready(group):
    scores = tuple(
        Score(rollout_id=one.rollout_id, value=None if one.must_abstain else float(place))
        for place, one in enumerate(group.rollouts)
    )
    scored = ScoredGroup(group=group, scores=scores)
    message = Message(header=builders.header(4), body=scored)
    return ReadyGroup(
        group_index=4,
        group_id=message.header.group_id,
        min_version=0,
        sources=frozenset(),
        scored=scored,
        data=encode(message),
    )


def test_the_log_tells_how_many_tokens_of_each_rollout_were_trained(tmp_path):
    path = write_rollouts(tmp_path, 1, [ready(builders.masked_group(4))], outcome([0.5, -0.5]))
    rows = parquet.read_table(path).to_pylist()
    assert [(row["tokens"], row["trained_tokens"], row["advantage"]) for row in rows] == [(2, 2, 0.5), (3, 2, -0.5)]


def test_an_abstained_rollout_is_logged_with_its_reason_and_no_reward(tmp_path):
    made = ready(builders.group(4, size=3))
    lost = Score(rollout_id=made.scored.group.rollouts[1].rollout_id, value=None, reason="the judge hung")
    scores = (made.scored.scores[0], lost, replace(made.scored.scores[2], token_scores=np.array([0.5, 1], np.float32)))
    made = replace(made, scored=replace(made.scored, scores=scores, versions={"judge": "3"}))
    rows = parquet.read_table(write_rollouts(tmp_path, 1, [made], outcome([0.5, -0.5]))).to_pylist()
    assert [(row["reward"], row["advantage"], row["trained_tokens"]) for row in rows] == [
        (0.0, 0.5, 2),
        (None, None, 0),
        (3.5, -0.5, 2),
    ]
    assert [row["reason"] for row in rows] == ["", "the judge hung", ""]
    assert [row["token_score"] for row in rows] == [None, None, 1.5]
    assert rows[0]["scorers"] == '{"judge": "3"}'
    assert json.loads(rows[0]["columns"]) == made.scored.group.prompt.columns


def test_all_tokens_are_logged_and_unsampled_ones_have_no_logprob(tmp_path):
    group = builders.masked_group(4)
    rows = parquet.read_table(write_rollouts(tmp_path, 1, [ready(group)], outcome([0.5, -0.5]))).to_pylist()
    for row, rollout in zip(rows, group.rollouts, strict=True):
        assert row["token_ids"] == rollout.token_ids.tolist()
        assert [one is not None for one in row["logprobs"]] == rollout.trained_mask.tolist()
        assert row["token_advantages"] is None


def test_tokens_over_the_bound_are_in_the_log_as_not_trained(tmp_path):
    made = builders.masked_group(4)
    rollouts = []
    for one in made.rollouts:
        (span,) = one.spans
        young = replace(span, start=1, version=replace(span.version, version=2))
        rollouts.append(replace(one, spans=(replace(span, end=1), young)))
    group = ready(replace(made, rollouts=tuple(rollouts)))
    flat = [np.array([0.5, 0.5], np.float32), np.array([-0.5, -0.5], np.float32)]
    path = write_rollouts(tmp_path, 3, [group], outcome([0.5, -0.5], flat), most_lag=1)
    rows = parquet.read_table(path).to_pylist()
    assert [(row["tokens"], row["trained_tokens"]) for row in rows] == [(2, 1), (3, 1)]
    assert [row["token_advantages"] for row in rows] == [[None, 0.5], [None, -0.5, None]]
    rows = parquet.read_table(write_rollouts(tmp_path, 3, [group], outcome([0.5, -0.5], flat), most_lag=2)).to_pylist()
    assert [row["trained_tokens"] for row in rows] == [2, 2] and rows[0]["token_advantages"] is None


def test_an_episode_is_in_the_log_with_its_turns_and_its_error(tmp_path):
    rows = parquet.read_table(
        write_rollouts(tmp_path, 1, [ready(builders.played_group(4))], outcome([0.5]))
    ).to_pylist()
    masks = [[one is not None for one in row["logprobs"]] for row in rows]
    played, failed = (
        episode_view(row["episode"], mask, lambda ids: None) for row, mask in zip(rows, masks, strict=True)
    )
    assert [(one.start, one.end) for one in played.segments] == [(0, 3), (3, 5)] and played.turns == 3
    assert played.sampled_tokens == 4 and played.reward == 0.75
    assert rows[1]["finish_reason"] == "environment_error" and failed.error.endswith("(game.py:12)")
    plain = parquet.read_schema(write_rollouts(tmp_path, 2, [ready(builders.group(4))], outcome([0.5, -0.5])))
    assert "episode" not in plain.names


def test_the_border_between_thoughts_and_answer_is_in_messages_and_in_the_log(tmp_path):
    made = ready(builders.group(4, size=3))
    starts = (7, None, 0)
    scores = tuple(replace(one, answer_start=start) for one, start in zip(made.scored.scores, starts, strict=True))
    scored = replace(made.scored, scores=scores)
    sent = decode(encode(Message(header=builders.header(4), body=scored))).body
    assert [score.answer_start for score in sent.scores] == [7, None, 0]
    rows = parquet.read_table(
        write_rollouts(tmp_path, 1, [replace(made, scored=scored)], outcome([0.5] * 3))
    ).to_pylist()
    assert [row["answer_start"] for row in rows] == [7, -1, 0]
