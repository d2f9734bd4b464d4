import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from torch.autograd import gradcheck

from headrace.services.trainer.algorithms.logprobs import KeptIds, token_logprobs
from headrace.services.trainer.config.chunks import logprob_chunk


def naive(hidden, head, targets, temperature):
    logprobs = torch.log_softmax(hidden @ head.T / temperature[:, None], dim=1)
    return logprobs.gather(1, targets[:, None]).squeeze(1), -(logprobs.exp() * logprobs).sum(dim=1)


def inputs(tokens, width, vocab, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, width, generator=generator, dtype=dtype, requires_grad=True)
    head = torch.randn(vocab, width, generator=generator, dtype=dtype, requires_grad=True)
    targets = torch.randint(vocab, (tokens,), generator=generator)
    temperature = torch.rand(tokens, generator=generator, dtype=dtype) + 0.5
    return hidden, head, targets, temperature


def test_two_equal_logits_give_log_half_and_entropy_log_two():
    scores = token_logprobs(
        torch.ones(1, 1), torch.tensor([[3.0], [3.0]]), torch.tensor([1]), temperature=torch.ones(1), chunk=4
    )
    torch.testing.assert_close(scores.logprobs, torch.tensor([0.5]).log())
    torch.testing.assert_close(scores.entropy, torch.tensor([2.0]).log())


@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(1, 9), chunk=st.integers(0, 10), vocab=st.integers(1, 7), seed=st.integers(0, 99))
def test_values_and_gradients_equal_the_naive_float64_version_for_any_chunk(tokens, chunk, vocab, seed):
    hidden, head, targets, temperature = inputs(tokens, 3, vocab, seed=seed)
    scores = token_logprobs(hidden, head, targets, temperature=temperature, chunk=chunk)
    expected, expected_entropy = naive(hidden, head, targets, temperature)
    torch.testing.assert_close(scores.logprobs, expected)
    torch.testing.assert_close(scores.entropy, expected_entropy)
    weights = torch.linspace(-1, 2, tokens, dtype=torch.float64)
    ours = torch.autograd.grad((scores.logprobs * weights + scores.entropy * weights.flip(0)).sum(), (hidden, head))
    theirs = torch.autograd.grad((expected * weights + expected_entropy * weights.flip(0)).sum(), (hidden, head))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-9, atol=1e-11)


def test_numerical_gradients_agree():
    hidden, head, targets, temperature = inputs(3, 2, 4)
    assert gradcheck(
        lambda h, w: tuple(token_logprobs(h, w, targets, temperature=temperature, chunk=2)), (hidden, head)
    )


def test_a_cut_off_logprob_is_the_logit_less_the_logsumexp_of_the_kept_ids_and_reaches_no_other():
    """numpy, by definition; the second token has one id, the third all of them."""
    hidden, head, targets, temperature = inputs(3, 2, 5)
    targets = torch.tensor([4, 1, 0])
    kept = KeptIds(torch.tensor([3, 1, 0]), torch.tensor([0, 2, 4, 1]), 3)

    def scores(hidden, head):
        return tuple(token_logprobs(hidden, head, targets, temperature=temperature, chunk=2, kept=kept))

    logits = (hidden @ head.T / temperature[:, None]).detach().numpy()
    among = [[0, 2, 4], [1], [0, 1, 2, 3, 4]]
    rows = zip(logits, (4, 1, 0), among, strict=True)
    wanted = [row[target] - np.log(np.exp(row[ids]).sum()) for row, target, ids in rows]
    found, entropy, full = scores(hidden, head)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12)
    assert found[1] == 0
    for ours, theirs in zip((full, entropy), naive(hidden, head, targets, temperature), strict=True):
        torch.testing.assert_close(ours, theirs)
    (gradient,) = torch.autograd.grad(found[:2].sum(), hidden)
    share = np.exp(logits[0][among[0]] - np.log(np.exp(logits[0][among[0]]).sum()))
    by_hand = (head[4] - torch.from_numpy(share) @ head[[0, 2, 4]]) / temperature[0]
    torch.testing.assert_close(gradient, torch.stack([by_hand, *torch.zeros(2, 2, dtype=torch.float64)]).detach())
    assert gradcheck(scores, (hidden, head))
    some = torch.tensor([True, False, True])
    part = token_logprobs(hidden[some], head, targets[some], temperature=temperature[some], chunk=2, kept=kept.of(some))
    assert torch.equal(part.logprobs, found[some])


def test_a_vocabulary_too_large_for_the_cache_is_scored_in_smaller_parts():
    hidden, head, targets, temperature = inputs(7, 2, 1_200_000)
    scores = token_logprobs(hidden, head, targets, temperature=temperature, chunk=256)
    expected, expected_entropy = naive(hidden, head, targets, temperature)
    torch.testing.assert_close(tuple(scores), (expected, expected_entropy, expected))
    ours = torch.autograd.grad(scores.logprobs.sum(), (hidden, head))
    theirs = torch.autograd.grad(expected.sum(), (hidden, head))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_no_tokens_give_empty_scores_and_zero_gradients():
    hidden, head, targets, temperature = inputs(0, 3, 4)
    scores = token_logprobs(hidden, head, targets, temperature=temperature, chunk=2)
    scores.logprobs.sum().backward()
    assert scores.logprobs.shape == (0,)
    assert not head.grad.any()


def test_bfloat16_hidden_states_give_float32_scores_and_a_float32_head_gradient():
    hidden, head, targets, temperature = inputs(8, 16, 5, dtype=torch.float32)
    low = hidden.detach().to(torch.bfloat16).requires_grad_()
    scores = token_logprobs(low, head, targets, temperature=temperature, chunk=3)
    scores.logprobs.sum().backward()
    assert scores.logprobs.dtype == torch.float32 and head.grad.dtype == torch.float32
    expected, _ = naive(hidden, head, targets, temperature)
    torch.testing.assert_close(scores.logprobs, expected, atol=0.15, rtol=0)


def test_a_float32_head_rounds_no_logit_of_bfloat16_states():
    hidden, head, targets, temperature = inputs(40, 32, 300, dtype=torch.float32)
    low = hidden.detach().to(torch.bfloat16).requires_grad_()
    rounded = head.detach().to(torch.bfloat16).float().requires_grad_()
    options = {"temperature": temperature, "chunk": 7}
    wide, narrow = (token_logprobs(low, head, targets, **options, fp32_head=each) for each in (True, False))
    expected, expected_entropy = naive(low.float(), rounded, targets, temperature)
    torch.testing.assert_close(tuple(wide), (expected, expected_entropy, expected), atol=1e-5, rtol=0)
    assert (narrow.logprobs - expected).abs().max() > 1e-2
    weights = torch.linspace(-1, 2, 40)
    ours = torch.autograd.grad((wide.logprobs * weights + wide.entropy).sum(), (low, head))
    theirs = torch.autograd.grad((expected * weights + expected_entropy).sum(), (low, rounded))
    for our, their in zip(ours, theirs, strict=True):
        assert (our.float() - their.float()).norm() < 0.01 * their.float().norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_float32_head_changes_no_bit_where_states_are_that_wide(dtype):
    found = []
    for fp32_head in (False, True):
        hidden, head, targets, temperature = inputs(9, 8, 30, dtype=dtype)
        scores = token_logprobs(hidden, head, targets, temperature=temperature, chunk=4, fp32_head=fp32_head)
        found.append((*scores, *torch.autograd.grad(scores.logprobs.sum(), (hidden, head))))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_the_default_chunk_depends_on_the_device():
    assert [logprob_chunk(given, device) for given, device in ((0, "cpu"), (0, "cuda"), (7, "cuda"))] == [256, 2048, 7]


def test_wrong_shapes_are_refused():
    hidden, head, targets, temperature = inputs(3, 2, 4)
    with pytest.raises(TypeCheckError):
        token_logprobs(hidden, head, targets[:2], temperature=temperature, chunk=2)
