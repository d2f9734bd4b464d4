"""The prompt that proves a publication."""

import numpy as np
import torch

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.model.model import Policy
from headrace.wire.v1 import common_pb2


def make_canary(backend: Backend, *, seed: int, length: int, tolerance: float, chunk: int) -> common_pb2.Canary:
    """A prompt drawn from `seed` and the policy's logprobs of it at temperature 1. Every rank must make it."""
    assert isinstance(backend.module, Policy)
    token_ids = np.random.default_rng(seed).integers(0, backend.module.vocab, length).astype("<i4")
    ids = torch.from_numpy(token_ids.astype(np.int64)).to(backend.device)
    places = torch.arange(length - 1, device=ids.device)
    ones = torch.ones(length - 1, device=ids.device)
    with torch.no_grad():
        scores = backend(ids[None, :-1], torch.zeros_like(places), places, ids[1:], ones, chunk)
    logprobs = scores.logprobs.float().cpu().numpy().astype("<f4")
    return common_pb2.Canary(token_ids=token_ids.tobytes(), logprobs=logprobs.tobytes(), tolerance=tolerance)
