"""One rank that loads models by shards, and compares what it has with what `from_pretrained` gives.

python -m tests.integration.trainer.loading_rank FOLDER RANKS CASES
python -m tests.integration.trainer.loading_rank FOLDER RANKS peak
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from headrace.doctor.memory_plan import Training, states
from headrace.doctor.sizes import read_shape
from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.frozen import make_frozen
from headrace.services.trainer.backends.load_order import whole_models
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.distributed.topology import read_place
from headrace.services.trainer.model import deferred, loading
from headrace.services.trainer.model.loading import load_policy, load_value_model
from headrace.services.trainer.model.weight_sources import UndeferrableError
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from tests.ranks import assemble_ranks

CPU = torch.device("cpu")
FSDP2 = BackendOptions(name="fsdp2")
IDS = torch.tensor([[3, 7, 11, 2, 5, 19], [4, 4, 8, 1, 9, 2]])
ROWS, PLACES, TARGETS = torch.tensor([0, 0, 1]), torch.tensor([1, 5, 2]), torch.tensor([11, 4, 8])
LORA = LoraTable(rank=2, alpha=4, targets=("q_proj", "down_proj"))


def policy_inputs():
    return IDS, ROWS, PLACES, TARGETS, torch.full((3,), 0.7), 2


def same_shards(module, whole):
    """Every parameter is this rank's part of the whole one, every buffer the whole one, in every bit."""
    found, expected = dict(module.model.named_parameters()), dict(whole.model.named_parameters())
    assert list(found) == list(expected)
    for name, parameter in found.items():
        assert isinstance(parameter, DTensor) and parameter.device.type == "cpu", name
        assert parameter.requires_grad == expected[name].requires_grad, name
        mine = distribute_tensor(
            expected[name].detach(), parameter.device_mesh, parameter.placements, src_data_rank=None
        ).to_local()
        local = parameter.to_local()
        assert local.dtype == mine.dtype and torch.equal(local, mine), name
    buffers = dict(module.model.named_buffers())
    assert list(buffers) == [name for name, _ in whole.model.named_buffers()]
    for name, buffer in whole.model.named_buffers():
        assert buffers[name].dtype == buffer.dtype and torch.equal(buffers[name], buffer), name


def same_logits(module, whole):
    """The model's own; root and layers have been used by then."""
    module.unshard()
    with torch.no_grad():
        found, expected = module.model(input_ids=IDS).logits, whole.model(input_ids=IDS).logits
    assert torch.equal(found, expected)


def both(load, make, inputs, *, logits=True, **options):
    """Loaded by shards and loaded whole, from the same random state: equal, and so are their scores."""
    torch.manual_seed(5)
    whole = load(**options)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    module = load(ranks=RANKS, **options)
    assert torch.equal(state, torch.get_rng_state())
    assert module.deferred is not None and any(parameter.is_meta for parameter in module.parameters())
    made = make(module)
    assert module.deferred is None
    same_shards(module, whole)
    with torch.no_grad():
        found, expected = made(*inputs), whole(*inputs)
    for one, other in zip((found,) if isinstance(found, torch.Tensor) else found, _tuple(expected), strict=True):
        assert torch.equal(one, other)
    if logits:
        same_logits(module, whole)
    return made, whole


def _tuple(found):
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


def policy(folder, name, **options):
    load = partial(load_policy, folder / name, device="cpu", forward_dtype=torch.float32, **options)
    return both(load, lambda module: make_backend(module, RANKS, CPU, FSDP2), policy_inputs())


def stepped(folder, name):
    """It trains, too: weights move, as those of the model that was loaded whole and sharded then."""
    made, whole = policy(folder, name)
    again = make_backend(whole, RANKS, CPU, FSDP2)
    for backend in (made, again):
        backend.backward(backend(*policy_inputs()).logprobs.sum())
        backend.apply(learning_rate=1e-2, grad_clip=1.0)
    for (weight, one), (_, other) in zip(made.whole_weights(), again.whole_weights(), strict=True):
        assert torch.equal(one, other), weight
    holds_what_is_planned(made, folder / name)


def holds_what_is_planned(backend, model):
    """`headrace doctor` counts this rank's weights and optimizer to the byte: all its dimensions are even."""
    planned = states(read_shape(model), Training(backend="fsdp2", ranks=RANKS.size))
    local = [weight.to_local() for _, weight in backend.named_weights()]
    assert planned["weights"] == planned["gradients"] == sum(weight.nbytes for weight in local)
    (optimizer,) = backend._optimizers
    kept = [value for state in optimizer.state.values() for value in state.values()]
    mine = [value.to_local() if isinstance(value, DTensor) else value for value in kept]
    # A count for each tensor: of experts that are one tensor in memory the plan counts one each.
    more = 4 * (read_shape(model).tensors - len(local))
    assert planned["optimizer"] == sum(value.nbytes for value in mine) + more


def offloaded(folder, name):
    load = partial(load_policy, folder / name, device="cpu", forward_dtype=torch.float32, gradient_checkpointing=True)
    options = BackendOptions(name="fsdp2", cpu_offload=True)
    both(load, lambda module: make_backend(module, RANKS, CPU, options), policy_inputs())


def frozen(folder, name):
    load = partial(load_policy, folder / name, device="cpu", forward_dtype=torch.float32, trainable=False)
    both(load, lambda module: make_frozen(module, RANKS, CPU), policy_inputs())


def values(folder, name, outputs):
    load = partial(load_value_model, folder / name, device="cpu", forward_dtype=torch.float32, outputs=outputs)
    both(load, lambda module: make_backend(module, RANKS, CPU, FSDP2), (IDS, ROWS, PLACES), logits=False)


def whole_in_turn(folder, name):
    """A checkpoint that cannot be read in parts."""

    def refuse(load):
        torch.rand(3)
        raise UndeferrableError("for the test")

    loading.load_deferred = refuse
    try:
        policy(folder, name)
        values(folder, name, 2)
    finally:
        loading.load_deferred = deferred.load_deferred


def refused(folder, name):
    """Both ranks refuse logits that the trainer does not compute, and neither waits for the other."""
    try:
        load_policy(folder / name, device="cpu", forward_dtype=torch.float32, ranks=RANKS)
    except ConfigError as error:
        assert "logit_scale = 0.0625" in str(error), error
    else:
        raise AssertionError("it was taken")


def in_turn(folder, name):
    """Whole models of several ranks, where the host has no room for all: one rank after the other."""
    log = folder / "turns"
    from headrace.services.trainer.backends import load_order

    load_order._SHARE = 0.0
    with whole_models(RANKS, folder / name, sharded=False):
        before = log.read_text() if log.exists() else ""
        assert before == "".join(f"in {rank} out {rank} " for rank in range(RANKS.rank))
        log.write_text(before + f"in {RANKS.rank} ")
        load_policy(folder / name, device="cpu", forward_dtype=torch.float32)
        log.write_text(log.read_text() + f"out {RANKS.rank} ")


CASES = {
    "tied, bfloat16": partial(stepped, name="tied-bfloat16"),
    "untied, float16, in several files": partial(policy, name="untied-float16"),
    "a tied head in the checkpoint, too": partial(policy, name="tied-twice"),
    "a head that is to be tied and is another": partial(policy, name="tied-unlike"),
    "experts": partial(stepped, name="qwen3_moe"),
    "experts and buffers": partial(policy, name="deepseek_v3"),
    "a scaled embedding": partial(policy, name="gemma"),
    "positions": partial(policy, name="gpt2"),
    "offloaded": partial(offloaded, name="untied-float16"),
    "adapters": partial(policy, name="tied-bfloat16", lora=LORA),
    "frozen": partial(frozen, name="qwen3_moe"),
    "a critic": partial(values, name="tied-bfloat16", outputs=3),
    "a reward model": partial(values, name="classifier", outputs=1),
    "quantiles of a reward model": partial(values, name="classifier", outputs=4),
    "whole, in turn": partial(whole_in_turn, name="qwen3_moe"),
    "other logits": partial(refused, name="cohere"),
    "whole models in turn": partial(in_turn, name="tied-bfloat16"),
}


def memory(key):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) << 10


def peak(folder):
    """How far loading a model of several hundred MB raises this rank's memory, in bytes."""
    # What the first load of a process brings with it: code, threads, the group.
    warm = load_policy(folder / "tied-bfloat16", device="cpu", forward_dtype=torch.float32, ranks=RANKS)
    make_backend(warm, RANKS, CPU, FSDP2)
    RANKS.barrier()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    module = load_policy(folder / "large", device="cpu", forward_dtype=torch.bfloat16, ranks=RANKS)
    make_backend(module, RANKS, CPU, FSDP2)
    RANKS.barrier()
    return memory("VmHWM") - before


def main() -> None:
    global RANKS
    folder, size, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    RANKS = assemble_ranks(size, read_place(sys.argv[4:]), device=CPU, timeout_s=60, grouped=True)
    if names == "peak":
        (folder / f"peak-{RANKS.rank}").write_text(str(peak(folder)))
    else:
        for name in json.loads(names):
            CASES[name](folder)
            (folder / f"{name} {RANKS.rank}").touch()
    RANKS.leave()
    os._exit(0)


if __name__ == "__main__":
    main()
