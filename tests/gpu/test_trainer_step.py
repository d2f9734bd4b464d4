import pytest
import torch

from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.durability.checkpoint import CheckpointState, CheckpointStore
from headrace.services.trainer.durability.host_copy import HostCopy
from headrace.services.trainer.learner.learner import state_of
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.step.batch import assemble
from headrace.services.trainer.step.inputs import Rates, StepConfig, StepModels
from headrace.services.trainer.step.step import train_step
from tests.gpu.device import CUDA, DEVICE, on_device
from tests.unit.services.trainer.builders import scored_group, tiny_folder

pytestmark = on_device

GROUPS = [scored_group(index) for index in range(4)]
TABLE = AlgorithmTable(aggregation="token-mean")
RECIPE = StepConfig(
    algorithm=build_algorithm(TABLE),
    table=TABLE,
    micro_batch_tokens=64,
    logprob_chunk=16,
    grad_clip=1.0,
)


def backend(folder, device=DEVICE, dtype=torch.float32):
    policy = load_policy(folder, device=device, forward_dtype=dtype)
    return SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)


def steps(used, count):
    actors, rates = StepModels(policy=used), Rates(policy=1e-3)
    batch = assemble(GROUPS, version=0)
    peaks = {"peak_host_memory_bytes": 1.0}
    return [train_step(actors, batch, RECIPE, rates, peaks=lambda: peaks).metrics for _ in range(count)]


def test_losses_on_the_gpu_equal_losses_on_the_cpu(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    on_cpu, on_gpu = steps(backend(folder, "cpu"), 3), steps(backend(folder), 3)
    for cpu, gpu in zip(on_cpu, on_gpu, strict=True):
        assert gpu["loss"] == pytest.approx(cpu["loss"], abs=1e-4)
        assert gpu["grad_norm"] == pytest.approx(cpu["grad_norm"], rel=1e-3)


def test_bfloat16_forward_trains_float32_weights(tmp_path):
    used = backend(tiny_folder(tmp_path / "model"), dtype=torch.bfloat16)
    losses = [metrics["loss"] for metrics in steps(used, 5)]
    assert losses[-1] < losses[0]
    assert all(
        weight.dtype == torch.float32 and weight.device.type == DEVICE.type for _, weight in used.named_weights()
    )


def test_a_checkpoint_goes_from_gpu_to_gpu(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    used, other = backend(folder), backend(folder)
    steps(used, 2)
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    state = CheckpointState(step=2, incarnation=1, frontier=0, fates=(), coefficients={}, config_digest="")
    files = state_of("model", "optimizer", used) | {"random": ()}
    store.save(state, HostCopy(DEVICE).take(files, beside=True).result())
    loaded = store.newest()
    other.load(loaded.weights, loaded.optimizer)
    first, second = steps(used, 1)[0], steps(other, 1)[0]
    assert second["loss"] == pytest.approx(first["loss"], abs=1e-6)
    assert second["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5)


def test_a_snapshot_lies_in_host_memory_and_is_pinned_for_a_gpu(tmp_path):
    publisher = Publisher(
        host="127.0.0.1",
        dtype=torch.bfloat16,
        bucket_bytes=4096,
        weights_folder=None,
        model_path=tiny_folder(tmp_path / "model"),
        disk_only=False,
        canary=lambda policy: make_canary(policy, seed=0, length=8, tolerance=0.5, chunk=4),
    )
    held = publisher.hold(backend(tmp_path / "model", dtype=torch.bfloat16), 1)
    assert {bucket.device.type for bucket in held.snapshot.buckets} == {"cpu"}
    assert all(bucket.is_pinned() for bucket in held.snapshot.buckets) == CUDA
    assert len(held.canary.logprobs) == 7 * 4
