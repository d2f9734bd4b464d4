"""FSDP2: the weights of each layer are sharded over the ranks, and whole only while it computes (arXiv:2304.11277)."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from headrace.services.trainer.algorithms.products import speed_up
from headrace.services.trainer.backends.compilation import compile_layers
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import TrainedModule
from headrace.services.trainer.model.quantization import quantized_weights
from headrace.wire.weights.collective import with_watchdog


def shard(module: TrainedModule, ranks: Ranks, device: torch.device, *, cpu_offload: bool, compiled: bool) -> None:
    """Shards `module` in place over all ranks: each decoder layer, and the rest (embedding, head) as one.

    Layers compute in the module's forward dtype; master weights and the sums of gradients are float32. `cpu_offload`:
    shards and optimizer stay in host memory. `compiled`: layers are compiled by torch.compile. Weights that are still
    in their files (`module.deferred`) are read now, each rank its own. Ranks that share rows divide their tokens.
    """
    if ranks.context is not None:
        module.share_tokens(ranks.context)
    with with_watchdog():
        mesh = init_device_mesh(device.type, (ranks.size,))
    low = module.forward_dtype == torch.bfloat16
    # Inputs are not cast: bfloat16 would round temperatures.
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if low else None,
        reduce_dtype=torch.float32 if low else None,
        cast_forward_inputs=False,
    )
    offload = CPUOffloadPolicy(pin_memory=device.type != "cpu") if cpu_offload else OffloadPolicy()
    # Small as they are, 4-bit weights stay whole on every rank.
    apart = quantized_weights(module)
    layers = module.layers()
    if compiled:
        compile_layers(module)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=precision, offload_policy=offload, ignored_params=apart)
    # The rest is resharded after forward too: a pass without a backward leaves no parameter unsharded.
    fully_shard(
        module,
        mesh=mesh,
        mp_policy=precision,
        offload_policy=offload,
        ignored_params=apart,
        reshard_after_forward=True,
    )
    if module.deferred is not None:
        kept_on = torch.device("cpu") if cpu_offload else device
        module.deferred.fill(module, module.model, device=kept_on)
        module.deferred = None
        if not compiled:
            speed_up(module)
    for part in (*layers, module):
        assert isinstance(part, FSDPModule)
        part.set_gradient_divide_factor(1.0)
        # Gloo supports sums only, and a sum is what is needed.
        part.set_force_sum_reduction_for_comms(True)
