"""The prompt that proves a publication."""

import numpy as np
import torch

from services.trainer.algorithms.logprobs import token_logprobs
from services.trainer.model import Policy
from wire.v1 import common_pb2


def make_canary(policy: Policy, *, seed: int, length: int, tolerance: float, chunk: int) -> common_pb2.Canary:
    """A prompt drawn from `seed` and the policy's logprobs of it at temperature 1."""
    vocab = policy.head.shape[0]
    token_ids = np.random.default_rng(seed).integers(0, vocab, length).astype("<i4")
    ids = torch.from_numpy(token_ids.astype(np.int64)).to(policy.device)
    with torch.no_grad():
        hidden = policy.hidden(ids[None, :-1])[0]
        scores = token_logprobs(
            hidden, policy.head, ids[1:], temperature=torch.ones(length - 1, device=ids.device), chunk=chunk
        )
    logprobs = scores.logprobs.float().cpu().numpy().astype("<f4")
    return common_pb2.Canary(token_ids=token_ids.tobytes(), logprobs=logprobs.tobytes(), tolerance=tolerance)
