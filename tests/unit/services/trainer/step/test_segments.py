"""Episodes of several segments: rows of their own in the forward pass, one rollout everywhere else."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from headrace.services.trainer.algorithms.names import AGGREGATIONS
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import assemble, batch_metrics, micro_batch
from headrace.wire.contracts import (
    EnvironmentTask,
    Episode,
    FinishReason,
    IdLists,
    PolicyVersion,
    PromptGroup,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    Segment,
    VersionSpan,
    group_id,
    rollout_id,
)
from tests.unit.services.trainer.builders import VOCAB, tiny_model
from tests.unit.services.trainer.step.test_step import config, gradient_and_loss


def episode(draw: np.random.Generator, name: str) -> Rollout:
    """Up to three segments of one or two turns, with the tokens of a tool between two turns."""
    tokens, mask, segments, ends = [], [], [], []
    for _ in range(draw.integers(1, 4)):
        context = draw.integers(2, VOCAB, draw.integers(1, 8)).astype(np.int32)
        segments.append(Segment(start=len(tokens), context_ids=context))
        for turn in range(draw.integers(1, 3)):
            if turn:
                mask += [False] * int(found := draw.integers(1, 4))
                tokens += draw.integers(2, VOCAB, found).tolist()
            mask += [True] * int(found := draw.integers(1, 5))
            tokens += draw.integers(2, VOCAB, found).tolist()
            ends.append(len(tokens))
    sampled = np.array(mask)
    return Rollout(
        rollout_id=name,
        token_ids=np.array(tokens, np.int32),
        logprobs=np.where(sampled, np.float32(-math.log(VOCAB)), np.float32(0)),
        finish_reason=FinishReason.STOP,
        spans=(VersionSpan(start=0, end=len(tokens), version=PolicyVersion(incarnation=1, version=0)),),
        loss_mask=sampled,
        episode=Episode(segments=tuple(segments), turn_ends=tuple(ends)),
    )


def kept_of(draw: np.random.Generator, rollout: Rollout) -> IdLists:
    """Each sampled token's own id, alone or among some others."""
    sampled = rollout.token_ids[rollout.trained_mask]
    lists = [np.unique([own, *draw.integers(0, VOCAB, draw.integers(0, 4))]).astype(np.int32) for own in sampled]
    counts = np.zeros(len(rollout.token_ids), np.int32)
    counts[rollout.trained_mask] = [len(ids) for ids in lists]
    return IdLists(counts=counts, ids=np.concatenate(lists))


def played(index: int, *, temperature: float = 1.0) -> ScoredGroup:
    """A group of three episodes and one that was lost."""
    draw, group = np.random.default_rng(index), group_id("run", index)
    rollouts = [episode(draw, rollout_id(group, number)) for number in range(3)]
    lost = Rollout(
        rollout_id=rollout_id(group, 3),
        token_ids=np.empty(0, np.int32),
        logprobs=np.empty(0, np.float32),
        finish_reason=FinishReason.TIME,
        spans=(),
        episode=Episode(),
    )
    prompt = PromptGroup(
        sample_id=f"row-{index}",
        token_ids=np.empty(0, np.int32),
        group_size=4,
        sampling=Sampling(temperature=temperature, max_tokens=40),
        environment=EnvironmentTask(name="calc", digest="d", task_json="{}"),
    )
    if index:  # What is cut off and what is not may share a batch: the config has changed between two lives.
        rollouts = [replace(one, kept=kept_of(draw, one)) for one in rollouts]
    values = [*draw.normal(size=3).tolist(), None]
    return ScoredGroup(
        group=RolloutGroup(prompt=prompt, rollouts=(*rollouts, lost)),
        scores=tuple(Score(rollout_id=rollout_id(group, number), value=value) for number, value in enumerate(values)),
    )


GROUPS = [played(index, temperature=0.5 + 0.5 * index) for index in range(3)]


def plain_loss(model: torch.nn.Module, mode: str) -> torch.Tensor:
    """The slow, obvious version: each segment alone through the whole model, the advantage of its rollout on it."""
    terms = []
    for scored in GROUPS:
        rewards = torch.tensor([score.value for score in scored.scores[:3]], dtype=torch.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for rollout, advantage in zip(scored.group.rollouts[:3], advantages, strict=True):
            new = torch.cat(_logprobs(model, scored, rollout))
            ratio = (new - torch.from_numpy(rollout.logprobs[rollout.trained_mask])).exp()
            terms.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage))
    total = torch.cat(terms).sum()
    return {
        "token-mean": total / sum(map(len, terms)),
        "token-sum": total,
        "seq-mean-token-mean": torch.stack([term.mean() for term in terms]).mean(),
        "seq-mean-token-sum": total / len(terms),
        "seq-mean-token-sum-norm": total / len(terms) / 40,
    }[mode]


def _logprobs(model: torch.nn.Module, scored: ScoredGroup, rollout: Rollout) -> list[torch.Tensor]:
    """Logprobs of the sampled tokens, segment by segment."""
    found = []
    segments = rollout.segments(scored.group.prompt)
    left = torch.ones(len(rollout.token_ids), VOCAB, dtype=torch.bool)
    if rollout.kept is not None:
        left[rollout.kept.counts > 0] = False
        left[np.repeat(np.arange(len(left)), rollout.kept.counts), rollout.kept.ids] = True
    ends = rollout.episode.ends(len(rollout.token_ids))
    for segment, end in zip(segments, ends, strict=True):
        own = rollout.token_ids[segment.start : end].tolist()
        ids = torch.tensor([[*segment.context_ids.tolist(), *own]])
        logits = model(ids).logits[0, -len(own) - 1 : -1] / scored.group.prompt.sampling.temperature
        logits = logits.masked_fill(~left[segment.start : end], -torch.inf)
        chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(own)[:, None]).squeeze(1)
        found.append(chosen[torch.from_numpy(rollout.trained_mask[segment.start : end])])
    return found


@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_loss_and_gradient_equal_a_plain_pass_over_each_segment(mode: str) -> None:
    gradient, loss = gradient_and_loss(config(aggregation=mode), groups=GROUPS)
    model = tiny_model().double()
    expected = plain_loss(model, mode)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(gradient[name], weight.grad, rtol=1e-5, atol=1e-9)


def test_a_kl_on_the_kept_ids_compares_both_policies_among_them() -> None:
    other = tiny_model(seed=7).double()
    reference = Policy(other, forward_dtype=torch.float64)
    (gradient, loss), (without, rest) = (
        gradient_and_loss(config(kl_coef=coef, kl_support="kept"), groups=GROUPS, reference=reference)
        for coef in (0.3, 0.0)
    )
    model = tiny_model().double()
    rollouts = [(scored, rollout) for scored in GROUPS for rollout in scored.group.rollouts[:3]]
    own, theirs = (torch.cat([one for pair in rollouts for one in _logprobs(of, *pair)]) for of in (model, other))
    difference = own - theirs.detach()
    kl = 0.3 * ((-difference).exp() - 1 + difference).mean()
    kl.backward()
    assert loss - rest == pytest.approx(kl.item(), rel=1e-9)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(gradient[name] - without[name], weight.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("budget", [1, 30, 70])
def test_the_gradient_is_the_same_for_any_micro_batch_size(budget: int) -> None:
    whole, loss = gradient_and_loss(config(), groups=GROUPS)
    split, split_loss = gradient_and_loss(config(micro_batch_tokens=budget), groups=GROUPS)
    assert split_loss == pytest.approx(loss, rel=1e-9)
    for name, found in split.items():
        torch.testing.assert_close(found, whole[name], rtol=1e-8, atol=1e-11)


def test_an_episode_that_was_lost_has_no_row_and_counts_as_abstained() -> None:
    batch = assemble(GROUPS, version=0)
    assert len(batch.rollouts) == 9 and [len(rewards) for rewards in batch.rewards] == [3, 3, 3]
    assert batch_metrics(GROUPS, version=0)["abstained"] == 3


def test_each_segment_is_a_row_and_each_sampled_token_is_scored_once() -> None:
    rollouts = assemble(GROUPS, version=0).rollouts
    micro = micro_batch(rollouts, torch.device("cpu"))
    assert len(micro.token_ids) == sum(len(one.segments) for one in rollouts) > len(rollouts)
    assert micro.lengths.tolist() == [int(one.loss_mask.sum()) for one in rollouts if one.loss_mask is not None]
    assert len(set(zip(micro.rows.tolist(), micro.places.tolist(), strict=True))) == int(micro.lengths.sum())


def test_contexts_of_all_segments_are_counted_as_prompt_tokens() -> None:
    contexts = [
        len(segment.context_ids) for one in GROUPS for rollout in one.group.rollouts[:3] for segment in
        rollout.segments(one.group.prompt)
    ]  # fmt: skip
    assert batch_metrics(GROUPS, version=0)["prompt_tokens"] == sum(contexts)
