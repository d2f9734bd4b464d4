"""One device: the model whole, AdamW on float32 master weights."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from services.trainer.model import Policy

_CPU_OVERHEAD_TOKENS = 32
_GPU_OVERHEAD_TOKENS = 2048


class SingleDevice:
    """See `services.trainer.backends.backend.Backend`."""

    def __init__(self, policy: Policy, *, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        self.policy = policy
        self.overhead_tokens = _GPU_OVERHEAD_TOKENS if policy.device.type == "cuda" else _CPU_OVERHEAD_TOKENS
        self._named = dict(policy.named_weights())
        matrices = [weight for weight in self._named.values() if weight.ndim > 1]
        others = [weight for weight in self._named.values() if weight.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=0.0, betas=betas, eps=eps, fused=True
        )

    def backward(self, loss: Tensor) -> None:
        """See `Backend`."""
        loss.backward()  # type: ignore[no-untyped-call]

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """See `Backend`."""
        limit = grad_clip if grad_clip > 0 else math.inf
        norm = float(nn.utils.clip_grad_norm_(self._named.values(), limit))
        if math.isfinite(norm):
            for group in self._optimizer.param_groups:
                group["lr"] = learning_rate
            self._optimizer.step()
        self.discard()
        return norm

    def discard(self) -> None:
        """See `Backend`."""
        self._optimizer.zero_grad(set_to_none=True)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `Backend`."""
        return ((name, weight.detach()) for name, weight in self._named.items())

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """See `Backend`."""
        tensors: dict[str, Tensor] = {}
        for name, weight in self._named.items():
            tensors |= {f"{name}/{key}": value for key, value in self._optimizer.state.get(weight, {}).items()}
        return tensors

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """See `Backend`."""
        shapes = {name: weight.shape for name, weight in self._named.items()}
        if shapes != {name: weight.shape for name, weight in weights.items()}:
            odd = sorted(shapes.keys() ^ weights.keys()) or [n for n in shapes if shapes[n] != weights[n].shape]
            raise ValueError(f"the weights are not those of this model: {', '.join(odd[:3])}")
        with torch.no_grad():
            for name, weight in self._named.items():
                weight.copy_(weights[name])
        self._optimizer.state.clear()
        for key, tensor in optimizer.items():
            name, _, part = key.rpartition("/")
            device = self._named[name].device
            self._optimizer.state.setdefault(self._named[name], {})[part] = tensor.clone().to(device)
