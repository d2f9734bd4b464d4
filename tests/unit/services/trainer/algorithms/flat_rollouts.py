"""Rollouts as hypothesis draws them, and as the algorithms take them: flat, float64, with lengths."""

import torch
from hypothesis import strategies as st

from headrace.services.trainer.algorithms import parts
from headrace.services.trainer.algorithms.algorithm import PolicyTokens, Signals


def numbers(low, high):
    return st.floats(low, high).map(lambda x: round(x, 4))


def drawn(*columns, longest=5, most=5):
    """A strategy of rollouts, each a list of tokens, each a tuple of one number a column; rollouts may be empty."""
    return st.lists(st.lists(st.tuples(*columns), max_size=longest), min_size=1, max_size=most)


def flat(rollouts, columns):
    """One float64 tensor [tokens] a column, and the lengths."""
    tokens = [token for rollout in rollouts for token in rollout]
    tensors = [torch.tensor([token[i] for token in tokens], dtype=torch.float64) for i in range(columns)]
    return *tensors, torch.tensor([len(rollout) for rollout in rollouts])


LOGPROBS = numbers(-6, 0)
ADVANTAGES = numbers(-3, 3)
TRAINED = drawn(LOGPROBS, LOGPROBS, ADVANTAGES)
"""Tokens of (logprob, old logprob, advantage)."""


def signals_of(rewards, sizes=None, lengths=None, **more):
    """Signals of float64 rewards: one group of rollouts of one token each, where nothing else is given."""
    count = len(rewards)
    lengths = torch.ones(count, dtype=torch.long) if lengths is None else torch.as_tensor(lengths)
    return Signals(
        rewards=torch.as_tensor(rewards, dtype=torch.float64),
        group_sizes=(count,) if sizes is None else tuple(sizes),
        lengths=lengths,
        **{"baselines": None, "truncated": torch.zeros(count, dtype=torch.bool), **more},
    )


def estimate(name, signals, **options):
    """The declared estimate."""
    part = parts.ADVANTAGES[name]
    return part.load()(signals, part.options(**options))


def policy_loss(name, logprobs, old, advantages, lengths=None, **options):
    """The declared loss of float64 tokens, of one rollout where no lengths are given."""
    part = parts.POLICY_LOSSES[name]
    lengths = torch.tensor([len(logprobs)]) if lengths is None else lengths
    logprobs, old, advantages = (torch.as_tensor(x, dtype=torch.float64) for x in (logprobs, old, advantages))
    tokens = PolicyTokens(logprobs=logprobs, old=old, advantages=advantages, lengths=lengths)
    return part.load()(tokens, part.options(**options))


def check_loss(name, slow, rollouts, **values):
    """The declared loss `name` and its gradient equal those of `slow`, rollout by rollout.

    `slow` takes the rollout's logprobs (a list of scalars), old logprobs, advantages, and returns a loss a token.
    """
    logprobs, old, advantages, lengths = flat(rollouts, 3)
    logprobs.requires_grad_()
    weights = torch.linspace(0.5, 1.5, len(logprobs), dtype=torch.float64)
    result = policy_loss(name, logprobs, old, advantages, lengths, **values)
    expected, start = [], 0
    for length in lengths.tolist():
        part = slice(start, start + length)
        expected += slow(list(logprobs[part]), old[part].tolist(), advantages[part].tolist(), **values)
        start += length
    golden = torch.stack(expected) if expected else torch.zeros(0, dtype=torch.float64)
    torch.testing.assert_close(result.per_token, golden, rtol=1e-9, atol=1e-10)
    if len(logprobs):
        ours, theirs = (
            torch.autograd.grad((x * weights).sum(), logprobs, retain_graph=True)[0] for x in (result.per_token, golden)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(result.kl, (old - logprobs).detach())
    return result
