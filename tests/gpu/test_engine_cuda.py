"""The torch engine on a GPU: same tokens and logprobs as transformers, same promises as on a CPU."""

from typing import Any

import numpy as np
import pytest
import torch

from headrace.services.rollout.engines.protocol import GenerateRequest, InFlight
from headrace.services.rollout.engines.torch.architecture import read_architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from headrace.services.rollout.engines.torch.core import EngineCore
from headrace.services.rollout.engines.torch.groups import Installed, Outcome
from headrace.services.rollout.engines.torch.linear import WideLinear
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.rope import rotation_table
from headrace.services.rollout.engines.torch.weights import build_weights
from headrace.services.trainer.algorithms.products import wide_product
from headrace.wire.contracts import PolicyVersion
from tests.gpu.device import DEVICE, on_device
from tests.rollout_models import make_model, make_request, random_prompts, run

pytestmark = on_device


def make_core(model: Any, *, dtype: torch.dtype, rows: int = 16, deterministic: bool = False) -> EngineCore:
    device = DEVICE
    arch = read_architecture(model.config)
    weights = build_weights(arch, dict(model.named_parameters()), dtype=dtype, device=device)
    cache = KeyValueCache(arch, rows=rows, context_length=256, dtype=dtype, device=device)
    parts = Model(arch, weights, rotation_table(model.config, 256, device), cache)
    core = EngineCore(parts, vocab=arch.vocab, deterministic=deterministic, device=device)
    core.install(weights, Installed(PolicyVersion(incarnation=1, version=0), "d"), InFlight.RETRACT)
    return core


def reference(model: Any, prompt: list[int], completion: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ids = torch.tensor([[*prompt, *completion.tolist()]], device=DEVICE)
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    chosen = logits.log_softmax(-1).gather(1, torch.tensor(completion, device=DEVICE).long()[:, None]).squeeze(1)
    return chosen.cpu().numpy(), logits.argmax(-1).cpu().numpy()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_float32_equals_transformers_on_the_gpu(kind: str) -> None:
    model = make_model(kind, head_dim=32).to(DEVICE)
    core = make_core(model, dtype=torch.float32)
    prompts = random_prompts(5, 30, 12)
    requests = [make_request(prompt, 4, greedy=index == 0, max_tokens=60) for index, prompt in enumerate(prompts)]
    for index, (prompt, completions) in enumerate(zip(prompts, run(core, requests), strict=True)):
        for completion in completions:
            wanted, likeliest = reference(model, prompt, completion.token_ids)
            np.testing.assert_allclose(completion.logprobs, wanted, atol=1e-4)
            if index == 0:
                assert completion.token_ids.tolist() == likeliest.tolist()


def test_bfloat16_stays_close_to_transformers_in_bfloat16() -> None:
    model = make_model("qwen3", head_dim=64, hidden_size=256, intermediate_size=512, initializer_range=0.05)
    model = model.to(DEVICE).bfloat16()
    core = make_core(model, dtype=torch.bfloat16)
    (prompt,) = random_prompts(20)
    (completions,) = run(core, [make_request(prompt, 8, max_tokens=100)])
    for completion in completions:
        wanted, _ = reference(model, prompt, completion.token_ids)
        assert np.abs(completion.logprobs - wanted).mean() < 0.02
        assert np.abs(completion.logprobs - wanted).max() < 0.3


def test_retraction_and_moves_work_on_the_gpu() -> None:
    old, new = make_model(seed=0, head_dim=32).to(DEVICE), make_model(seed=1, head_dim=32).to(DEVICE)
    core = make_core(old, dtype=torch.float32, rows=10)
    prompts = random_prompts(7, 15, 70)
    done: dict[int, Outcome] = {}
    for index, prompt in enumerate(prompts):
        request: GenerateRequest = make_request(prompt, 3, seed=index * 10, max_tokens=30 + 20 * index)
        core.submit(request, lambda outcome, index=index: done.__setitem__(index, outcome))  # type: ignore[misc]
    for _ in range(12):
        core.step()
    weights = build_weights(
        read_architecture(new.config), dict(new.named_parameters()), dtype=torch.float32, device=DEVICE
    )
    core.install(weights, Installed(PolicyVersion(incarnation=1, version=1), "e"), InFlight.RETRACT)
    while core.has_work:
        core.step()
    for index, prompt in enumerate(prompts):
        completions = done[index]
        assert not isinstance(completions, Exception)
        for completion in completions:
            assert [span.end for span in completion.spans] == [13, len(completion.token_ids)]
            before, _ = reference(old, prompt, completion.token_ids)
            after, _ = reference(new, prompt, completion.token_ids)
            np.testing.assert_allclose(completion.logprobs[:13], before[:13], atol=1e-4)
            np.testing.assert_allclose(completion.logprobs[13:], after[13:], atol=1e-4)


def test_the_deterministic_mode_repeats_itself_on_the_gpu() -> None:
    model = make_model(head_dim=32).to(DEVICE)
    (prompt, other) = random_prompts(9, 33)
    request = make_request(prompt, 5, seed=3, max_tokens=60)
    core = make_core(model, dtype=torch.float32, deterministic=True)
    (first,) = run(core, [request])
    _, (second) = run(core, [make_request(other, 3, max_tokens=40), request])
    for mine, theirs in zip(first, second, strict=True):
        assert mine.logprobs.tobytes() == theirs.logprobs.tobytes()


def test_a_float32_head_rounds_no_logit() -> None:
    draw = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, 256, generator=draw).bfloat16().to(DEVICE) for rows in (9, 500))
    found = WideLinear(weight)(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x.float() @ weight.float().T, atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(wide_product(x, weight), found)
