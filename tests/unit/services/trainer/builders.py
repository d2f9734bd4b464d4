"""Small things to train on, made from seeds."""

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

from headrace.wire.contracts import (
    FinishReason,
    PolicyVersion,
    PromptGroup,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    VersionSpan,
    group_id,
    rollout_id,
)

VOCAB = 24


def tiny_model(seed=0, *, tied=True, layers=1, hidden=16):
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(tiny_config(tied=tied, layers=layers, hidden=hidden))


def tiny_classifier(seed=0, *, outputs=1, layers=1, hidden=16):
    torch.manual_seed(seed)
    return Qwen3ForSequenceClassification(tiny_config(layers=layers, hidden=hidden, num_labels=outputs))


def tiny_config(*, tied=True, layers=1, hidden=16, **more):
    return Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
        **more,
    )


def tiny_folder(path, **kwargs):
    tiny_model(**kwargs).save_pretrained(path)
    return path


def scored_group(
    index=0,
    *,
    run_id="run",
    size=4,
    version=0,
    incarnation=1,
    digest="",
    rewards=None,
    longest=9,
    temperature=1.0,
    logprobs=None,
):
    """A group whose tokens and rewards are a function of its index."""
    draw = np.random.default_rng(1000 + index)
    group = group_id(run_id, index)
    rollouts = []
    for number in range(size):
        length = int(draw.integers(1, longest + 1))
        tokens = draw.integers(2, VOCAB, length).astype(np.int32)
        given = np.full(length, -np.log(VOCAB), np.float32) if logprobs is None else logprobs[number][:length]
        span = VersionSpan(
            start=0,
            end=length,
            version=PolicyVersion(incarnation=incarnation, version=version),
            weights_digest=digest,
        )
        rollouts.append(
            Rollout(
                rollout_id=rollout_id(group, number),
                token_ids=tokens,
                logprobs=given,
                finish_reason=FinishReason.LENGTH if length == longest else FinishReason.STOP,
                spans=(span,),
                text=" ".join(map(str, tokens)),
            )
        )
    prompt = PromptGroup(
        sample_id=f"sample-{index}",
        token_ids=draw.integers(2, VOCAB, 3 + index % 3).astype(np.int32),
        group_size=size,
        sampling=Sampling(max_tokens=longest, temperature=temperature),
        min_version=version,
        text=f"prompt {index}",
    )
    values = [float(value) for value in (draw.integers(0, 2, size) if rewards is None else rewards)]
    scores = tuple(
        Score(rollout_id=r.rollout_id, value=v, components={"exact": v}) for r, v in zip(rollouts, values, strict=True)
    )
    return ScoredGroup(group=RolloutGroup(prompt=prompt, rollouts=tuple(rollouts)), scores=scores)
