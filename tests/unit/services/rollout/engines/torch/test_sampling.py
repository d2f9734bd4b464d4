"""Sampling: the right distribution, the right logprobs, and no token outside the allowed set."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.rollout.engines.torch.sampling import (
    RowKinds,
    RowSampling,
    inverse_cdf,
    sample,
    truncation_mask,
    uniform,
)

ALL = RowKinds(tempered=True, truncated=64, greedy=True, forced=True)


def parameters(rows: int, vocab: int, **changes: object) -> RowSampling:
    values: dict[str, object] = {
        "seed": torch.arange(rows),
        "inverse_temperature": torch.ones(rows),
        "top_k": torch.full((rows,), vocab),
        "top_p": torch.ones(rows, dtype=torch.float64),
        "min_p": torch.zeros(rows, dtype=torch.float64),
        "cut": torch.zeros(rows, dtype=torch.bool),
        "greedy": torch.zeros(rows, dtype=torch.bool),
        "forced_length": torch.zeros(rows, dtype=torch.int64),
        "stops": torch.full((rows, 2), -1),
    }
    return RowSampling(**(values | changes))  # type: ignore[arg-type]


def splitmix(seed: int, counter: int) -> float:
    """The same number from plain Python integers."""
    mask = (1 << 64) - 1
    mixed = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    mixed ^= mixed >> 31
    return ((mixed >> 16) + 0.5) * 2.0**-48


@given(seed=st.integers(0, 2**63 - 1), counter=st.integers(0, 2**31))
def test_uniforms_are_splitmix64(seed: int, counter: int) -> None:
    assert uniform(torch.tensor([seed]), torch.tensor([counter])).item() == splitmix(seed, counter)


@settings(deadline=None)
@given(
    weights=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20).filter(lambda each: sum(each) > 1e-6),
    share=st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_the_inverse_cdf_never_draws_a_weight_of_zero(weights: list[float], share: float) -> None:
    share = min(max(share, 2.0**-49), 1 - 2.0**-49)
    index = inverse_cdf(torch.tensor([weights]), torch.tensor([share], dtype=torch.float64)).item()
    assert weights[int(index)] > 0


def test_sampled_frequencies_match_the_softmax() -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0]).repeat(20000, 1)
    temperature = 1.7
    rows = parameters(20000, 4, inverse_temperature=torch.full((20000,), 1 / temperature))
    tokens, logprobs, _ = sample(logits, rows, ALL, torch.zeros(20000, dtype=torch.int64))
    wanted = (logits[0] / temperature).log_softmax(-1)
    frequencies = torch.bincount(tokens, minlength=4) / 20000
    torch.testing.assert_close(frequencies, wanted.exp(), atol=0.012, rtol=0)
    torch.testing.assert_close(logprobs, wanted[tokens])


def allowed_by_definition(probabilities: np.ndarray, top_k: int, top_p: float, min_p: float) -> set[int]:
    """SGLang 0.5.23's `top_k_top_p_min_p_sampling_from_probs_torch` (layers/sampler.py:785), a token at a time."""
    kept: set[int] = set()
    before = 0.0
    for rank, token in enumerate(np.argsort(-probabilities, kind="stable")):
        if rank < top_k and before <= top_p and probabilities[token] >= min_p * probabilities.max():
            kept.add(int(token))
        before += float(probabilities[token])
    return kept


@settings(deadline=None, max_examples=150)
@given(
    vocab=st.integers(2, 700),
    top_k=st.integers(1, 700),
    top_p=st.one_of(st.just(1.0), st.floats(0.05, 0.99)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
    spread=st.floats(0.1, 4),
    seed=st.integers(0, 1000),
)
def test_a_cut_allows_exactly_what_sglang_does(
    vocab: int, top_k: int, top_p: float, min_p: float, spread: float, seed: int
) -> None:
    logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(seed)) * spread
    probabilities = logits.softmax(-1)
    top_k = min(top_k, vocab)
    cut = {
        "top_k": torch.full((2,), top_k),
        "top_p": torch.full((2,), top_p, dtype=torch.float64),
        "min_p": torch.full((2,), min_p, dtype=torch.float64),
        "cut": torch.tensor([True, False]),
    }
    mask = truncation_mask(probabilities, parameters(2, vocab, **cut), top_k)
    found = set(mask[0].nonzero().squeeze(1).tolist())
    # At the very edge of a share float sums may disagree by one token.
    assert len(found ^ allowed_by_definition(probabilities[0].numpy(), top_k, top_p, min_p)) <= 1
    assert not mask[1].any()


def test_a_cut_draw_stays_in_its_ids_with_its_logprob_among_them() -> None:
    logits = torch.randn(1, 50).repeat(5000, 1)
    rows = parameters(
        5000,
        50,
        top_k=torch.full((5000,), 7),
        top_p=torch.full((5000,), 0.8, dtype=torch.float64),
        cut=torch.ones(5000, dtype=torch.bool),
    )
    tokens, logprobs, kept = sample(logits, rows, ALL, torch.arange(5000))
    inside = sorted(allowed_by_definition(logits[0].softmax(-1).numpy(), 7, 0.8, 0.0))
    assert kept is not None and kept[0].nonzero().squeeze(1).tolist() == inside == sorted(set(tokens.tolist()))
    wanted = torch.full((50,), -torch.inf).index_copy_(0, torch.tensor(inside), logits[0][inside].log_softmax(-1))
    torch.testing.assert_close(logprobs, wanted[tokens])


def test_of_ties_at_the_edge_the_lowest_ids_are_kept() -> None:
    rows = parameters(1, 4, top_k=torch.tensor([2]), cut=torch.tensor([True]))
    assert truncation_mask(torch.tensor([[0.2, 0.4, 0.2, 0.2]]), rows, 2).tolist() == [[True, True, False, False]]


def test_greedy_rows_take_the_likeliest_token_beside_sampled_ones() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0]]).repeat(2, 1)
    tokens, *_ = sample(logits, parameters(2, 3, greedy=torch.tensor([True, False])), ALL, torch.zeros(2).long())
    assert tokens[0] == 1


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_forced_length_ends_with_the_stop_token_and_not_before(count: int) -> None:
    logits = torch.zeros(1000, 3)
    logits[:, 2] = 9.0
    rows = parameters(1000, 3, forced_length=torch.full((1000,), 4), stops=torch.tensor([[2, -1]]).repeat(1000, 1))
    tokens, logprobs, _ = sample(logits, rows, ALL, torch.full((1000,), count))
    assert (tokens == 2).all() if count == 3 else (tokens != 2).all()
    torch.testing.assert_close(logprobs, logits[0].log_softmax(-1)[tokens])


def test_skipping_unused_sampling_kinds_changes_nothing() -> None:
    logits = torch.randn(64, 30)
    rows = parameters(64, 30)
    none = RowKinds(tempered=False, truncated=0, greedy=False, forced=False)
    first, second = (sample(logits, rows, kinds, torch.arange(64)) for kinds in (none, ALL))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
