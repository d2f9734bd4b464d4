"""Several ranks by DeepSpeed's ZeRO (arXiv:1910.02054): stage 1, 2 or 3.

Weights are float32; with a bfloat16 forward pass they are cast where they are used. The package is an extra.
"""

import contextlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headrace.services.trainer.backends.compilation import compile_layers
from headrace.services.trainer.backends.options import BackendOptions, overhead_tokens
from headrace.services.trainer.backends.state import check_weights, drop_foreign, find_tensors, state_parts
from headrace.services.trainer.backends.zero import (
    get_master,
    get_moment,
    import_deepspeed,
    set_master,
    whole_shape,
    zero_config,
)
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.optimizers import build_optimizers, state_keys
from headrace.wire.errors import ConfigError
from headrace.wire.weights.collective import with_watchdog

_MOMENTS = ("exp_avg", "exp_avg_sq")
_EXTRA = "trainer.backend = 'deepspeed' needs the extra `deepspeed`: pip install 'headrace[deepspeed]'; or take 'fsdp2'"


class DeepSpeedBackend:
    """Implements `headrace.services.trainer.backends.backend.Backend` with a DeepSpeed engine."""

    rows_stay = False

    def __init__(self, module: TrainedModule, ranks: Ranks, device: torch.device, options: BackendOptions) -> None:
        """Takes `module` over, the same one on every rank. Raises ConfigError for options that ZeRO lacks."""
        if options.optimizer.name != "adamw":
            raise ConfigError(
                f"trainer.optimizer {options.optimizer.name!r} does not work on ZeRO's flat partitions: "
                "take 'adamw', or trainer.backend = 'fsdp2'"
            )
        if module.quantized and options.zero_stage == 3:
            raise ConfigError(
                "model.lora.quantize: ZeRO's stage 3 cannot partition 4-bit weights: set trainer.zero_stage = 2, or "
                "trainer.backend = 'fsdp2'"
            )
        if options.compiled and options.zero_stage == 3:
            raise ConfigError(
                "trainer.compile: stage 3 gathers weights in the middle of a layer: set trainer.compile = false, "
                "trainer.zero_stage = 2, or trainer.backend = 'fsdp2'"
            )
        deepspeed = import_deepspeed(device)
        self.module = module
        self.ranks = ranks
        self.device = device
        self.overhead_tokens = overhead_tokens(device)
        self._stage = options.zero_stage
        self._named = dict(module.named_weights())
        (self._base,) = build_optimizers(module, options.optimizer)
        if options.compiled:
            compile_layers(module)
        with contextlib.redirect_stdout(io.StringIO()), with_watchdog():
            self._engine, *_ = deepspeed.initialize(
                model=module, optimizer=self._base, config=zero_config(options, device)
            )
        if self._stage == 3:
            # The head's weight is used outside of its own module.
            deepspeed.zero.register_external_parameter(module, module.head)
        self._zero = self._engine.optimizer
        self._gathered = False
        self.before_change: Callable[[], None] = lambda: None

    def __call__(self, *inputs: object) -> Any:
        """Runs the module's forward pass through the engine."""
        return self._engine(*inputs)

    def backward(self, loss: Tensor, *, last: bool = True) -> None:
        """Accumulates the gradient in the engine; `last` marks the accumulation boundary."""
        self._engine.set_gradient_accumulation_boundary(last)
        # ZeRO takes the mean over ranks.
        self._engine.backward(loss * self.ranks.size)
        self._gathered = True

    def apply(self, *, learning_rate: float, grad_clip: float) -> float:
        """Steps DeepSpeed's optimizer; returns NaN for a gradient that is not finite, which ZeRO skips."""
        for group in self._base.param_groups:
            group["lr"] = learning_rate
        self._zero.clip_grad = grad_clip
        self._engine.step()
        self._gathered = False
        return math.nan if self._zero.overflow else float(self._engine.get_global_grad_norm())

    def discard(self) -> None:
        """Drops the gradient through a step with a NaN norm, which makes ZeRO skip the update."""
        if not self._gathered:
            return
        self._gathered = False
        self._engine.set_gradient_accumulation_boundary(True)
        name = "_get_norm_groups" if self._stage == 3 else "scaled_global_norm"
        nothing = torch.tensor(math.nan, device=self.device)
        setattr(self._zero, name, lambda: [nothing] if self._stage == 3 else nothing)
        try:
            self._engine.step()
        finally:
            delattr(self._zero, name)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields the master weights. Stage 3 gathers each as it is yielded: consume all of them on every rank."""
        for name, weight in self._named.items():
            yield name, get_master(weight) if self._stage == 3 else weight.detach()

    def tensors(self, names: Sequence[str]) -> list[Tensor]:
        """Returns the named weights and buffers; those that are partitioned are gathered here."""
        found = find_tensors(self.module, self._named, names)
        return [get_master(each) if hasattr(each, "ds_id") else each.detach() for each in found]

    def whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Copies the weights of `named_weights` to the CPU, one at a time."""
        return ((name, weight.cpu()) for name, weight in self.named_weights())

    def whole_state(self) -> dict[str, Tensor]:
        """Gathers the state dict on rank 0, merging adapters; empty on other ranks, and for a quantized module."""
        if self.module.quantized:
            return {}
        whole: dict[Tensor, Tensor] = {}
        state: dict[str, Tensor] = {}
        for name, tensor in dict(self.module.model.state_dict(keep_vars=True)).items():
            if tensor not in whole:
                with self._whole(tensor):
                    whole[tensor] = tensor.detach().cpu().clone() if self.ranks.rank == 0 else torch.empty(0)
            state[name] = whole[tensor]
        return {} if self.ranks.rank else self.module.export_state(state)

    def weight_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of each weight. ZeRO's partitions are not rows: each weight is gathered first."""
        return self._rows(self.named_weights())

    def optimizer_rows(self) -> Iterator[tuple[str, Tensor]]:
        """Yields this rank's rows of the Adam moments, each gathered first, and the step; none before the first one."""
        return self._rows(self._moments())

    def _moments(self) -> Iterator[tuple[str, Tensor]]:
        if not self._base.state:
            return
        self._link_state()
        step = next(iter(self._base.state.values()))["step"]
        for name, weight in self._named.items():
            for key in _MOMENTS:
                yield f"{name}/{key}", get_moment(weight, key)
            yield f"{name}/step", step

    def _rows(self, named: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, whole in named:
            parts = whole.chunk(self.ranks.size) if whole.dim() else (whole,)
            if self.ranks.rank < len(parts):
                yield name, parts[self.ranks.rank]

    def park(self) -> int:
        """Raises ConfigError: ZeRO's flat buffers cannot be moved to the host."""
        raise ConfigError("rollout.gpu_sharing = 'turns' needs trainer.backend auto, single or fsdp2")

    def unpark(self) -> int:
        """Returns 0: nothing is ever parked."""
        return 0

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Copies weights into module and ZeRO partitions, and restores the Adam moments, each rank its own part."""
        whole = {name: torch.empty(whole_shape(weight), device="meta") for name, weight in self._named.items()}
        check_weights(whole, weights)
        for name, weight in self._named.items():
            with self._whole(weight, changed=True), torch.no_grad():
                weight.copy_(weights[name])
            set_master(weight, weights[name].to(self.device, torch.float32), self.ranks.rank)
        self._base.state.clear()
        parts = state_parts(self._named, optimizer)
        expected = {name: state_keys(self._base, weight) for name, weight in self._named.items()}
        if not parts or drop_foreign(parts, expected, leads=self.ranks.rank == 0):
            return
        self._make_state(optimizer[f"{next(iter(parts))}/step"])
        for name, weight in self._named.items():
            for key in _MOMENTS if name in parts else ():
                set_master(weight, optimizer[f"{name}/{key}"].to(self.device), self.ranks.rank, key)

    def _make_state(self, step: Tensor) -> None:
        """Creates empty moments, which ZeRO otherwise creates in its first step."""
        name = "fp32_partitioned_groups_flat" if self._stage == 3 else "single_partition_of_fp32_groups"
        for part in getattr(self._zero, name):
            self._base.state[part] = {"step": step.clone().to(part.device)} | {
                key: torch.zeros_like(part) for key in _MOMENTS
            }
        self._link_state()

    def _link_state(self) -> None:
        """Lets ZeRO's stages 1 and 2 find each weight's moments again; by themselves they link them only once."""
        if self._stage < 3:
            self._zero._hp_optimizer_states_linked = False
            self._zero._lazy_init_hp_params_optimizer_state()

    def _whole(self, weight: Tensor, *, changed: bool = False) -> contextlib.AbstractContextManager[object]:
        """Within it a weight that stage 3 has partitioned is whole; with `changed`, rank 0's changes are kept."""
        if not hasattr(weight, "ds_id"):
            return contextlib.nullcontext()
        import deepspeed

        gathered: contextlib.AbstractContextManager[object] = deepspeed.zero.GatheredParameters(
            [weight], modifier_rank=0 if changed else None
        )
        return gathered
