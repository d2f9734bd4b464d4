"""The engine against transformers, and against itself in other company."""

from typing import Any

import numpy as np
import pytest
import torch

from headrace.services.rollout.engines.protocol import AbandonedError, GenerationError, InFlight
from headrace.services.rollout.engines.torch.groups import Outcome
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.step.batch import TrainRollout, micro_batch
from headrace.services.trainer.step.forward import score_tokens
from headrace.wire.contracts import FinishReason
from headrace.wire.errors import ContractError
from tests.rollout_models import (
    install,
    make_core,
    make_model,
    make_request,
    random_prompts,
    reference_logprobs,
    run,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "rope_theta": 1e4,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4, "rope_parameters": LLAMA3}),
    ("llama", {"tie_word_embeddings": True, "head_dim": 20}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    ("qwen3", {"head_dim": 24}),
    ("qwen3", {"tie_word_embeddings": True, "rope_parameters": YARN}),
]


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_greedy_decoding_equals_transformers_generate(kind: str, changes: dict[str, Any]) -> None:
    model = make_model(kind, **changes)
    prompts = random_prompts(3, 20, 11)
    outcomes = run(make_core(model), [make_request(prompt, 2, greedy=True, max_tokens=40) for prompt in prompts])
    for prompt, completions in zip(prompts, outcomes, strict=True):
        with torch.no_grad():
            ids = torch.tensor([prompt])
            wanted = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40)
        for completion in completions:
            assert completion.token_ids.tolist() == wanted[0, len(prompt) :].tolist()


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_logprobs_equal_transformers_logprobs(kind: str, changes: dict[str, Any]) -> None:
    model = make_model(kind, **changes)
    (prompt,) = random_prompts(9)
    request = make_request(prompt, 4, temperature=0.7, max_tokens=50)
    (completions,) = run(make_core(model), [request])
    for completion in completions:
        wanted, _ = reference_logprobs(model, prompt, completion.token_ids, temperature=0.7)
        np.testing.assert_allclose(completion.logprobs, wanted, atol=1e-4, rtol=0)


def test_a_rollout_does_not_depend_on_what_runs_beside_it() -> None:
    model = make_model()
    prompts = random_prompts(5, 40, 17, 8, 60, 12)
    requests = [
        make_request(
            prompt, 4, seed=index * 10, max_tokens=6 + 9 * index, temperature=1 + index / 5, stop_token_ids=(3,)
        )
        for index, prompt in enumerate(prompts)
    ]
    together = run(make_core(model, rows=10), requests)
    for request, completions in zip(requests, together, strict=True):
        (alone,) = run(make_core(model), [request])
        for mine, theirs in zip(alone, completions, strict=True):
            assert mine.token_ids.tolist() == theirs.token_ids.tolist()
            np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-5)


def test_seeds_differ_and_a_seed_repeats() -> None:
    core = make_core(make_model())
    (prompt,) = random_prompts(6)
    (first,), (again,) = (run(core, [make_request(prompt, 4, seed=7, max_tokens=20)]) for _ in range(2))
    assert [each.token_ids.tolist() for each in first] == [each.token_ids.tolist() for each in again]
    assert len({tuple(each.token_ids.tolist()) for each in first}) == 4


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_last_rollouts_of_a_group_are_greedy_beside_sampled_ones(deterministic: bool) -> None:
    model = make_model()
    (prompt,) = random_prompts(6)
    sampling: dict[str, Any] = {"temperature": 1.7, "top_p": 0.9, "max_tokens": 24}
    (mixed,) = run(
        make_core(model, deterministic=deterministic), [make_request(prompt, 4, seed=5, greedy_last=1, **sampling)]
    )
    (sampled,) = run(make_core(model), [make_request(prompt, 3, seed=5, **sampling)])
    (greedy,) = run(make_core(model), [make_request(prompt, 1, greedy=True, max_tokens=24)])
    wanted = [each.token_ids.tolist() for each in (*sampled, *greedy)]
    assert [each.token_ids.tolist() for each in mixed] == wanted
    assert wanted[3] not in wanted[:3]
    for found, alone, temperature in zip(mixed, (*sampled, *greedy), (1.7, 1.7, 1.7, 1.0), strict=True):
        np.testing.assert_allclose(found.logprobs, alone.logprobs, atol=1e-5)
        if temperature == 1:
            wanted_logprobs, _ = reference_logprobs(model, prompt, found.token_ids, temperature)
            np.testing.assert_allclose(found.logprobs, wanted_logprobs, atol=1e-4)


@pytest.mark.parametrize(
    "cut",
    [
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.3, "top_k": 5},
        {"min_p": 0.2},
        {"top_k": 30, "top_p": 0.8},
        {"top_p": 0.9, "min_p": 0.05},
        {"top_k": 500},
    ],
)
def test_the_trainer_gives_a_cut_draw_the_engines_logprobs(cut: dict[str, Any]) -> None:
    model = make_model()
    (prompt,) = random_prompts(9)
    request = make_request(prompt, 3, greedy_last=1, keeps_ids=True, max_tokens=40, **cut)
    *sampled, greedy = run(make_core(model), [request])[0]
    assert greedy.kept is None and len(sampled) == 2
    rollouts = [
        TrainRollout(
            prompt_ids=np.array(prompt, np.int32),
            completion_ids=one.token_ids,
            behaviour_logprobs=one.logprobs,
            current=np.ones(len(one.token_ids), np.bool_),
            temperature=request.sampling.temperature,
            kept=one.kept,
        )
        for one in sampled
    ]
    micro = micro_batch(rollouts, torch.device("cpu"))
    scores = score_tokens(Policy(model, forward_dtype=torch.float32), micro, chunk=7)
    torch.testing.assert_close(scores.logprobs.detach(), micro.behaviour_logprobs, atol=1e-4, rtol=0)
    for one in sampled:
        assert one.kept is not None
        one.kept.check("sampled", one.token_ids, np.ones(len(one.token_ids), np.bool_))


def test_a_stop_token_ends_a_rollout_and_belongs_to_it() -> None:
    stops = tuple(range(0, 97, 4))
    (prompt,) = random_prompts(6)
    (completions,) = run(make_core(make_model()), [make_request(prompt, 8, max_tokens=60, stop_token_ids=stops)])
    assert {each.finish_reason for each in completions} == {FinishReason.STOP}
    for completion in completions:
        assert completion.token_ids[-1] in stops
        assert not set(completion.token_ids[:-1].tolist()) & set(stops)


def test_the_token_limit_and_the_context_end_a_rollout_with_length() -> None:
    core = make_core(make_model(), context_length=32)
    limited, full = run(core, [make_request(prompt, 2, max_tokens=9) for prompt in random_prompts(20, 30)])
    assert [len(each.token_ids) for each in limited] == [9, 9]
    assert [len(each.token_ids) for each in full] == [2, 2]
    assert {each.finish_reason for each in (*limited, *full)} == {FinishReason.LENGTH}


@pytest.mark.parametrize(
    ("prompt", "size", "sampling", "code"),
    [
        ([1] * 128, 1, {}, "context_overflow"),
        ([1], 17, {}, "bad_group_size"),
        ([97], 1, {}, "bad_tokens"),
        ([1], 1, {"stop_token_ids": (97,)}, "bad_tokens"),
        ([1], 2, {"forced_lengths": (3,), "stop_token_ids": (2,)}, "bad_sampling"),
        ([1], 1, {"forced_lengths": (3,)}, "bad_sampling"),
    ],
)
def test_requests_that_can_never_be_generated_are_rejected(
    prompt: list[int], size: int, sampling: dict[str, Any], code: str
) -> None:
    with pytest.raises(ContractError, match=code):
        make_core(make_model()).submit(make_request(prompt, size, **sampling), lambda outcome: None)


def test_forced_lengths_are_kept() -> None:
    (prompt,) = random_prompts(6)
    request = make_request(prompt, 4, max_tokens=50, stop_token_ids=(5,), forced_lengths=(1, 17, 40, 3))
    (completions,) = run(make_core(make_model()), [request])
    assert [len(each.token_ids) for each in completions] == [1, 17, 40, 3]
    assert all(each.token_ids[-1] == 5 and 5 not in each.token_ids[:-1] for each in completions)


def halfway(in_flight: InFlight, *, deterministic: bool = False) -> tuple[Any, Any, list[list[int]], list[Outcome]]:
    """Two groups of 3 with 30 tokens each, whose weights change after 12 steps."""
    old, new = make_model(seed=0), make_model(seed=1)
    core = make_core(old, deterministic=deterministic)
    prompts = random_prompts(7, 15)
    done: list[Outcome] = []
    for index, prompt in enumerate(prompts):
        request = make_request(prompt, 3, seed=index * 10, max_tokens=30 + index)
        core.submit(request, done.append)
    for _ in range(12):
        core.step()
    install(core, new, version=5, in_flight=in_flight)
    while core.has_work:
        core.step()
    return old, new, prompts, done


def test_retracted_rollouts_keep_their_tokens_and_go_on_exactly_under_the_new_weights() -> None:
    old, new, prompts, done = halfway(InFlight.RETRACT)
    for prompt, completions in zip(prompts, done, strict=True):
        assert not isinstance(completions, Exception)
        for completion in completions:
            spans = [(span.start, span.end, span.version.version, span.weights_digest) for span in completion.spans]
            length = len(completion.token_ids)
            assert spans == [(0, 13, 0, "digest-0"), (13, length, 5, "digest-5")]
            before, _ = reference_logprobs(old, prompt, completion.token_ids)
            after, _ = reference_logprobs(new, prompt, completion.token_ids)
            np.testing.assert_allclose(completion.logprobs[:13], before[:13], atol=1e-4)
            np.testing.assert_allclose(completion.logprobs[13:], after[13:], atol=1e-4)


def test_in_place_keeps_old_keys_and_values() -> None:
    _, new, prompts, done = halfway(InFlight.IN_PLACE)
    completions = done[0]
    assert not isinstance(completions, Exception)
    assert [len(each.spans) for each in completions] == [2, 2, 2]
    after, _ = reference_logprobs(new, prompts[0], completions[0].token_ids)
    assert np.abs(completions[0].logprobs[13:] - after[13:]).max() > 1e-2


def test_equal_weights_under_a_new_version_disturb_nothing() -> None:
    model = make_model()
    (prompt,) = random_prompts(8)
    request = make_request(prompt, 3, max_tokens=25)
    (wanted,) = run(make_core(model, deterministic=True), [request])
    core = make_core(model, deterministic=True)
    done: list[Outcome] = []
    core.submit(request, done.append)
    for _ in range(9):
        core.step()
    install(core, model, version=0)
    while core.has_work:
        core.step()
    assert not isinstance(done[0], Exception)
    for mine, theirs in zip(wanted, done[0], strict=True):
        assert mine.logprobs.tobytes() == theirs.logprobs.tobytes()
        assert mine.spans == theirs.spans
    assert core.stats().recomputed_tokens == 0


def test_the_deterministic_mode_gives_equal_bits_regardless_of_earlier_work() -> None:
    model = make_model()
    prompts = random_prompts(9, 4, 33)
    request = make_request(prompts[0], 5, seed=3, max_tokens=60, stop_token_ids=tuple(range(0, 97, 9)))
    noise = [
        make_request(prompt, size, seed=size, max_tokens=33) for prompt, size in zip(prompts[1:], (2, 7), strict=True)
    ]
    fresh = make_core(model, deterministic=True)
    used = make_core(model, deterministic=True)
    run(used, noise)
    (first,), (*_, second, _) = run(fresh, [request]), run(used, [noise[0], request, noise[1]])
    for mine, theirs in zip(first, second, strict=True):
        assert mine.token_ids.tobytes() == theirs.token_ids.tobytes()
        assert mine.logprobs.tobytes() == theirs.logprobs.tobytes()


def test_the_deterministic_mode_restarts_a_group_under_new_weights() -> None:
    _, new, prompts, done = halfway(InFlight.RETRACT, deterministic=True)
    for index, completions in enumerate(done):
        (wanted,) = run(
            make_core(new, deterministic=True),
            [make_request(prompts[index], 3, seed=index * 10, max_tokens=30 + index)],
        )
        assert not isinstance(completions, Exception)
        for mine, theirs in zip(wanted, completions, strict=True):
            assert mine.logprobs.tobytes() == theirs.logprobs.tobytes()
            assert [span.version.version for span in theirs.spans] == [5]


def test_score_equals_transformers_and_disturbs_nothing() -> None:
    model = make_model()
    core = make_core(model)
    (prompt, canary) = random_prompts(8, 40)
    done: list[Outcome] = []
    core.submit(make_request(prompt, 2, max_tokens=20), done.append)
    core.step()
    scores = core.score(torch.tensor(canary))
    while core.has_work:
        core.step()
    wanted, _ = reference_logprobs(model, canary[:1], np.array(canary[1:]))
    np.testing.assert_allclose(scores.numpy(), wanted, atol=1e-4)
    (alone,) = run(make_core(model), [make_request(prompt, 2, max_tokens=20)])
    assert not isinstance(done[0], Exception)
    assert [each.token_ids.tolist() for each in done[0]] == [each.token_ids.tolist() for each in alone]


def test_a_diverged_model_fails_its_groups_and_leaves_no_nan_behind() -> None:
    good, bad = make_model(), make_model()
    with torch.no_grad():
        bad.model.norm.weight.fill_(float("nan"))
        bad.model.layers[0].input_layernorm.weight.fill_(float("nan"))
    (prompt,) = random_prompts(8)
    core = make_core(good)
    install(core, bad, version=1)
    with pytest.raises(GenerationError, match="not finite"):
        run(core, [make_request(prompt, 4, max_tokens=20)])
    install(core, good, version=2)
    (healed,) = run(core, [make_request(prompt, 4, max_tokens=20)])
    (wanted,) = run(make_core(good), [make_request(prompt, 4, max_tokens=20)])
    assert [each.token_ids.tolist() for each in healed] == [each.token_ids.tolist() for each in wanted]


def test_abandoned_and_cancelled_groups_free_their_rows() -> None:
    core = make_core(make_model(), rows=4)
    (prompt,) = random_prompts(8)
    done: list[Outcome] = []
    core.submit(make_request(prompt, 4, max_tokens=50), done.append)
    core.step()
    core.abandon("quarantined")
    assert isinstance(done[0], AbandonedError) and not core.has_work
    group = core.submit(make_request(prompt, 4, max_tokens=50), done.append)
    core.step()
    core.cancel(group)
    assert len(done) == 1 and len(run(core, [make_request(prompt, 4, max_tokens=5)])) == 1
