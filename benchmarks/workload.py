"""The workload that Headrace and its peers are measured on: one model, one set of prompts, one draw of lengths.

Imports only what every environment has. Completion lengths are forced (a stop token at a drawn position, none before),
because random weights never stop by themselves: lognormal, as the lengths of real answers are.
"""

import json
import math
import random
from pathlib import Path
from typing import Any

VOCABULARY = 4096
PAD, EOS = "<pad>", "<eos>"
GROUPS, GROUP_SIZE = 8, 8
MAX_TOKENS = 512
MEAN_TOKENS = 65
LEARNING_RATE = 1e-5
PROMPT_WORDS = 12


def lengths(row: int, seed: int, sigma: float) -> list[int]:
    """Completion lengths of the rollouts of one prompt: lognormal with mean 65, 2 to 512 tokens; sigma 0 = all 65."""
    draw = random.Random(f"{seed}/{row}")
    mu = math.log(MEAN_TOKENS) - sigma**2 / 2
    return [min(MAX_TOKENS, max(2, round(draw.lognormvariate(mu, sigma)))) for _ in range(GROUP_SIZE)]


def rows(count: int, seed: int, sigma: float) -> list[dict[str, Any]]:
    """Prompts with their lengths; the first word names the row, so that a peer finds its lengths again."""
    draw = random.Random(seed)
    prompts = []
    for row in range(count):
        words = [f"w{row}", *(f"w{draw.randrange(VOCABULARY - 2)}" for _ in range(PROMPT_WORDS - 1))]
        prompts.append({"prompt": " ".join(words), "forced_lengths": lengths(row, seed, sigma)})
    return prompts


def write_rows(path: Path, count: int, seed: int, sigma: float) -> None:
    """Writes the prompts as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count, seed, sigma)))


def score(completion: str, **_: Any) -> float:
    """The reward of both: the share of even words. Cheap, and not constant."""
    words = [word for word in completion.split() if word.startswith("w")]
    return sum(int(word[1:]) % 2 == 0 for word in words) / max(1, len(words))


def model_config(vocabulary: int, *, pad: int, eos: int) -> Any:
    """A Qwen3 of 3.2 (64 tokens) to 4.2 million parameters (4096 tokens)."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=None,
    )


def make_model(folder: Path) -> int:
    """Writes a random Qwen3 of 4.2 M parameters with a word-level tokenizer; returns its number of parameters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    vocabulary = {PAD: 0, EOS: 1, **{f"w{i}": i + 2 for i in range(VOCABULARY - 2)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=PAD)
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = model_config(VOCABULARY, pad=0, eos=1)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder, safe_serialization=True)
    return sum(parameter.numel() for parameter in model.parameters())
