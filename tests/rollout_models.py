"""Tiny random models and engines for the tests of the rollout service."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from headrace.services.rollout.engines.protocol import Completion, GenerateRequest, InFlight
from headrace.services.rollout.engines.torch.architecture import read_architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from headrace.services.rollout.engines.torch.core import EngineCore
from headrace.services.rollout.engines.torch.groups import Installed, Outcome
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.rope import rotation_table
from headrace.services.rollout.engines.torch.weights import build_weights
from headrace.wire.contracts import IdLists, PolicyVersion, Sampling

VOCAB = 97
SPECIAL = VOCAB - 3
"""Ids from here on are special tokens."""
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def make_model(kind: str = "qwen3", *, seed: int = 0, **changes: Any) -> Any:
    """A random transformers model whose logits are far from flat; biases and norms are not those of a fresh one."""
    torch.manual_seed(seed)
    numbers: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "eos_token_id": None,
        "bos_token_id": None,
        "pad_token_id": None,
    }
    model = AutoModelForCausalLM.from_config(CONFIGS[kind](**(numbers | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def make_silent_model(**changes: Any) -> Any:
    """One whose layers add nothing to the embedding, and whose weights bfloat16 holds: all its rounding is the head's.

    So trainer and engine in bfloat16 are as near to each other as their heads are.
    """
    model = make_model(tie_word_embeddings=False, **changes)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(2.0)
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    return model


def make_core(model: Any, *, rows: int = 16, context_length: int = 128, deterministic: bool = False) -> EngineCore:
    """An engine core with the model's weights installed as version 1.0."""
    device = torch.device("cpu")
    arch = read_architecture(model.config)
    cache = KeyValueCache(arch, rows=rows, context_length=context_length, dtype=torch.float32, device=device)
    weights = build_weights(arch, dict(model.named_parameters()), dtype=torch.float32, device=device)
    table = rotation_table(model.config, context_length, device)
    core = EngineCore(Model(arch, weights, table, cache), vocab=arch.vocab, deterministic=deterministic, device=device)
    install(core, model, version=0)
    return core


def install(core: EngineCore, model: Any, *, version: int, in_flight: InFlight = InFlight.RETRACT) -> None:
    """Installs the model's weights; their digest is named after the version."""
    arch = read_architecture(model.config)
    weights = build_weights(arch, dict(model.named_parameters()), dtype=torch.float32, device=torch.device("cpu"))
    installed = Installed(PolicyVersion(incarnation=1, version=version), f"digest-{version}")
    core.install(weights, installed, in_flight)


def make_request(prompt: list[int], size: int, *, seed: int = 0, **sampling: Any) -> GenerateRequest:
    """A request for `size` rollouts with seeds from `seed`."""
    return GenerateRequest(
        group_id=f"run/g{seed:08d}",
        token_ids=np.array(prompt, dtype=np.int32),
        seeds=tuple(range(seed, seed + size)),
        sampling=Sampling(**sampling),
    )


def run(core: EngineCore, requests: list[GenerateRequest]) -> list[tuple[Completion, ...]]:
    """Submits all and steps until all are delivered; raises what was delivered instead of rollouts."""
    done: dict[int, Outcome] = {}
    for index, request in enumerate(requests):
        core.submit(request, lambda outcome, index=index: done.__setitem__(index, outcome))  # type: ignore[misc]
    while core.has_work:
        core.step()
    found = []
    for index in range(len(requests)):
        outcome = done[index]
        if isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found


def reference_logprobs(
    model: Any, prompt: list[int], completion: np.ndarray, temperature: float = 1.0, kept: IdLists | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """transformers' logprobs [completion] of the completion's tokens, and its likeliest token at each place."""
    ids = torch.tensor([[*prompt, *completion.tolist()]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
    if kept is not None:
        left = torch.from_numpy(kept.owners).long(), torch.from_numpy(kept.ids).long()
        logits = torch.full_like(logits, -torch.inf).index_put_(left, logits[left])
    logprobs = (logits / temperature).log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(completion, dtype=torch.int64)[:, None]).squeeze(1)
    return chosen.numpy(), logits.argmax(-1).numpy()


def random_prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Random token ids."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCAB, size=length).tolist() for length in lengths]


def save_folder(model: Any, folder: Path) -> Path:
    """The model as a Hugging Face folder with a character tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {chr(33 + index): index for index in range(SPECIAL)}
    vocab |= {name: SPECIAL + index for index, name in enumerate(("<pad>", "<eos>", "<unk>"))}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
