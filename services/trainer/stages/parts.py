"""What a stage is made of, built from settings."""

import hashlib
import json
from functools import partial

import torch

from services.trainer.algorithms.registry import build_algorithm
from services.trainer.backends.single import SingleDevice
from services.trainer.loading import load_policy
from services.trainer.lora import adapter_config
from services.trainer.model import Policy
from services.trainer.publication.canary import make_canary
from services.trainer.publication.publisher import Publisher
from services.trainer.settings import TrainerSettings
from services.trainer.step import Recipe

_CANARY_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
_CONFIG_TABLES = {"model", "batch", "algorithm", "trainer", "run"}
_NOT_IN_WEIGHTS = ("fail_at", "resume", "memory_fraction", "publish")


def load_backend(settings: TrainerSettings) -> SingleDevice:
    """Model and optimizer as the run begins with them."""
    torch.set_num_threads(settings.run.threads)
    torch.manual_seed(settings.run.seed)
    table = settings.trainer
    if settings.run.device.startswith("cuda") and table.memory_fraction < 1:
        torch.cuda.set_per_process_memory_fraction(table.memory_fraction, torch.device(settings.run.device).index or 0)
    policy = load_policy(
        settings.model.path,
        device=settings.run.device,
        forward_dtype=getattr(torch, settings.model.dtype),
        gradient_checkpointing=table.gradient_checkpointing,
        lora=settings.model.lora,
    )
    return SingleDevice(policy, betas=table.betas, eps=table.eps, weight_decay=table.weight_decay)


def load_reference(settings: TrainerSettings) -> Policy | None:
    """The frozen model that the KL is taken to, if it is asked for."""
    if settings.algorithm.kl_coef == 0:
        return None
    dtype = getattr(torch, settings.model.dtype)
    return load_policy(settings.model.path, device=settings.run.device, forward_dtype=dtype, trainable=False)


def make_recipe(settings: TrainerSettings) -> Recipe:
    """The step's unchanging values."""
    algorithm, table = settings.algorithm, settings.trainer
    return Recipe(
        algorithm=build_algorithm(algorithm.name, algorithm.model_dump()),
        aggregation=algorithm.aggregation,
        norm_length=algorithm.norm_length,
        kl_coef=algorithm.kl_coef,
        kl_estimator=algorithm.kl_estimator,
        micro_batch_tokens=table.micro_batch_tokens,
        logprob_chunk=table.logprob_chunk,
        grad_clip=table.grad_clip,
    )


def make_publisher(settings: TrainerSettings) -> Publisher:
    """The holder of snapshots."""
    table = settings.trainer
    return Publisher(
        host=settings.host,
        dtype=getattr(torch, settings.model.dtype),
        bucket_bytes=table.bucket_mib * 1024 * 1024,
        weights_folder=settings.run_dir / "weights",
        model_path=settings.model.path,
        disk_only=table.publish == "disk",
        adapter_config=adapter_config(settings.model.lora, settings.model.path.name),
        canary=partial(
            make_canary,
            seed=settings.run.seed,
            length=table.canary_tokens,
            tolerance=table.canary_tolerance or _CANARY_TOLERANCE[settings.model.dtype],
            chunk=table.logprob_chunk,
        ),
    )


def config_digest(settings: TrainerSettings) -> str:
    """Hex sha256 of all settings that the weights depend on; paths, ports and deadlines are left out."""
    values = settings.model_dump(mode="json", include=_CONFIG_TABLES)
    values["model"].pop("path")
    for key in [key for key in values["trainer"] if key.endswith("_timeout_s") or key in _NOT_IN_WEIGHTS]:
        del values["trainer"][key]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def step_seed(seed: int, step: int) -> int:
    """Seed of the generators in one step: a replayed step draws what the first one drew."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{step}".encode(), digest_size=8).digest(), "little") >> 1
