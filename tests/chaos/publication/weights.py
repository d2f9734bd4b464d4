"""The weights of each version, a function of its number alone: whoever has a rollout can say what it was made from."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.wire.contracts import PolicyVersion, RolloutGroup
from tests.rollout_models import make_model, reference_logprobs, save_folder

BUCKET_BYTES = 2 * 1024 * 1024


def base_model() -> Any:
    """About 8 MB, most of it in the vocabulary: more than sockets buffer, and fast to decode with."""
    return make_model(vocab_size=16384, hidden_size=64, head_dim=16, max_position_embeddings=4096)


def folder_of(path: Path) -> Path:
    return save_folder(base_model(), path)


class Versions:
    """A model that can be set to the weights of any version."""

    def __init__(self) -> None:
        self.model = base_model()
        self._base = [parameter.detach().clone() for parameter in self.model.parameters()]

    def set(self, version: PolicyVersion) -> None:
        draw = torch.Generator().manual_seed(1000 * version.incarnation + version.version)
        with torch.no_grad():
            for parameter, base in zip(self.model.parameters(), self._base, strict=True):
                parameter.copy_(base + 0.05 * torch.randn(base.shape, generator=draw))

    def check(self, groups: Iterable[RolloutGroup]) -> None:
        """Each token has the logprob that the weights named by its span give it: nothing is mixed."""
        todo = [(span, rollout, group) for group in groups for rollout in group.rollouts for span in rollout.spans]
        now = None
        for span, rollout, group in sorted(todo, key=lambda each: each[0].version):
            if span.version != now:
                now = span.version
                self.set(now)
            wanted, _ = reference_logprobs(self.model, group.prompt.token_ids.tolist(), rollout.token_ids)
            part = slice(span.start, span.end)
            np.testing.assert_allclose(rollout.logprobs[part], wanted[part], atol=1e-3, err_msg=f"{span}")


def backend_of(versions: Versions) -> SingleDevice:
    policy = Policy(versions.model, forward_dtype=torch.float32)
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


def publisher_of(folder: Path) -> Publisher:
    return Publisher(
        host="127.0.0.1",
        dtype=torch.float32,
        bucket_bytes=BUCKET_BYTES,
        weights_folder=folder / "weights",
        model_path=folder / "model",
        disk_only=False,
        canary=partial(make_canary, seed=1, length=16, tolerance=1e-3, chunk=8),
    )
