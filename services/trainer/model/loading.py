"""Models out of Hugging Face folders: safetensors only, no code of the folder, float32 master weights."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging as transformers_logging

from headrace.services.trainer.algorithms.products import speed_up
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.deferred import Deferred, load_deferred, load_in_turn, stand_ins
from headrace.services.trainer.model.lora import add_adapters
from headrace.services.trainer.model.model import Policy, ValueModel, layers_of
from headrace.services.trainer.model.noise import noise_problem, turn_noise_off
from headrace.services.trainer.model.quantization import dequantize_body, quantize_body
from headrace.services.trainer.model.trainable import freeze_untrained
from headrace.services.trainer.model.weight_sources import UndeferrableError
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.model_files import indexed_weights
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.weights.head_check import logits_problem

_AutoClass = type[AutoModelForCausalLM | AutoModelForSequenceClassification]
log = get_logger("trainer.loading")


def load_policy(
    path: Path,
    *,
    device: str,
    forward_dtype: torch.dtype,
    trainable: bool = True,
    trained: str = "all",
    gradient_checkpointing: bool = False,
    lora: LoraTable | None = None,
    fp32_head: bool = False,
    ranks: Ranks | None = None,
) -> Policy:
    """Loads safetensors as float32 master weights; runs no code of the folder. Raises ConfigError for a bad one.

    With `lora` the weights are frozen and adapters are trained beside them; with `lora.quantize`, the frozen weights
    are in 4 bits. `trained`: the weights that have gradients (see `ModelTable.trainable`). `ranks`: the weights stay in
    their files until a backend shards the model over these ranks (see `headrace.services.trainer.model.deferred`), all
    of which must call this. 4-bit weights cannot be deferred.
    """
    deferred = None
    if ranks is not None:
        model, deferred = _load_deferred(AutoModelForCausalLM, path, ranks, device=device, look=_policy_problem)
    else:
        model = _load(AutoModelForCausalLM, path)
        if lora is not None and lora.quantize == "nf4":
            quantize_body(model, device=device, forward_dtype=forward_dtype)
        model.to(device)
        _refuse(_policy_problem(model), path)
    if lora is not None and lora.rank:
        with stand_ins(model):
            add_adapters(model, lora)
    else:
        model.requires_grad_(trainable)
        freeze_untrained(model, layers_of(model.get_decoder()), trained)
    _prepare(model, trainable=trainable, gradient_checkpointing=gradient_checkpointing)
    return Policy(model, forward_dtype=forward_dtype, lora=lora, fp32_head=fp32_head, deferred=deferred)


def load_rounded(path: Path, *, device: str, dtype: torch.dtype) -> PreTrainedModel:
    """Loads the transformers model with the rounded weights of a QLoRA run as plain weights, on the CPU in `dtype`.

    They are rounded on `device` as by `load_policy`; raises ConfigError as it does.
    """
    model = _load(AutoModelForCausalLM, path)
    _refuse(_policy_problem(model), path)
    quantize_body(model, device=device, forward_dtype=dtype)
    dequantize_body(model, dtype=dtype)
    return model.to("cpu", dtype)


def load_value_model(
    path: Path,
    *,
    device: str,
    forward_dtype: torch.dtype,
    outputs: int = 1,
    trainable: bool = True,
    gradient_checkpointing: bool = False,
    ranks: Ranks | None = None,
) -> ValueModel:
    """Loads a value model, as float32 master weights; raises ConfigError for a folder that holds none.

    The folder of a causal model gives its body, and a head of zeros. The folder of a `*ForSequenceClassification` with
    one label (a reward model) gives its head too; all `outputs` (quantiles, for example) start as copies of it. With
    `outputs` labels the head is used as it is. `ranks` as for `load_policy`.
    """
    scored = _is_classifier(path)
    labels = _labels(path) if scored else outputs
    if labels not in (1, outputs):
        raise ConfigError(f"model.path {path} has {labels} labels; a value model of {outputs} outputs begins with 1")
    deferred = None
    if ranks is not None:
        model, deferred = _load_deferred(
            AutoModelForSequenceClassification, path, ranks, device=device, num_labels=labels
        )
    else:
        model = _load(AutoModelForSequenceClassification, path, num_labels=labels)
    if not isinstance(getattr(model, "score", None), nn.Linear) or model.score.bias is not None:
        raise ConfigError(f"model.path {path}: {model.config.model_type} has no linear head `score` without a bias")
    if deferred is not None and (not scored or labels < outputs):
        deferred.put(model, "score.weight")
    with torch.no_grad():
        if not scored:
            model.score.weight.zero_()
        elif labels < outputs:
            weight = model.score.weight.expand(outputs, -1).clone()
            model.score = nn.Linear(weight.shape[1], outputs, bias=False)
            model.score.weight.copy_(weight)
    model.num_labels = model.config.num_labels = outputs
    if deferred is None:
        model.to(device)
        _refuse(noise_problem(model), path)
    model.requires_grad_(trainable)
    _prepare(model, trainable=trainable, gradient_checkpointing=gradient_checkpointing)
    return ValueModel(model, forward_dtype=forward_dtype, deferred=deferred)


def _load(kind: _AutoClass, path: Path, **options: int) -> PreTrainedModel:
    model = _from_pretrained(kind, path, **options)
    turn_noise_off(model, path)
    return model


def _load_deferred(
    kind: _AutoClass,
    path: Path,
    ranks: Ranks,
    *,
    device: str,
    look: Callable[[PreTrainedModel], str | None] = noise_problem,
    **options: int,
) -> tuple[PreTrainedModel, Deferred]:
    """Returns a model on the meta device with its buffers on `device`.

    `look` returns the problem of a loaded model, or None. Rank 0 checks, and the others wait for its result, for as
    long as a collective may take.
    """
    load = partial(_load, kind, path, **options)
    random = torch.get_rng_state()
    problems: list[str | None] = []
    try:
        model, deferred = load_deferred(load)
    except UndeferrableError as reason:
        effect = "each rank reads it whole, those of a machine one after the other"
        log.warning("model_read_whole", path=str(path), reason=str(reason), effect=effect)
        torch.set_rng_state(random)
        turn = partial(ranks.in_turn, "to load the model")
        model, deferred = load_in_turn(load, turn, lambda whole: problems.append(look(whole)))
    for owner in model.modules():
        for key, buffer in owner._buffers.items():
            owner._buffers[key] = None if buffer is None else buffer.to(device)
    if not problems:
        layers = layers_of(model.base_model)
        problems.append(
            ranks.share_text(lambda: _look(model, deferred, layers, device, look), "rank 0 to look at the model")
        )
    _refuse(problems[0] or None, path)
    return model, deferred


def _look(
    model: PreTrainedModel,
    deferred: Deferred,
    layers: list[nn.Module],
    device: str,
    look: Callable[[PreTrainedModel], str | None],
) -> str:
    with deferred.present(model, layers, device=torch.device(device)):
        return look(model) or ""


def _from_pretrained(kind: _AutoClass, path: Path, **options: int) -> PreTrainedModel:
    _config(path)
    indexed_weights(path)  # Before transformers opens what it names.
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        model = kind.from_pretrained(
            path, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, local_files_only=True, **options
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path {path} cannot be loaded: {error}") from error
    return model


def _config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        raise ConfigError(f"model.path {path} is no Hugging Face model folder: it has no config.json")
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigError(f"model.path {file} is no JSON: {error}") from error
    return found


def _is_classifier(path: Path) -> bool:
    return any(name.endswith("ForSequenceClassification") for name in _config(path).get("architectures") or ())


def _labels(path: Path) -> int:
    """Number of labels in a folder's config: transformers writes them as names, and omits them if there are two."""
    return len(_config(path).get("id2label") or (0, 1))


def _prepare(model: PreTrainedModel, *, trainable: bool, gradient_checkpointing: bool) -> None:
    model.train(trainable)
    if gradient_checkpointing and trainable:
        # The reentrant kind needs inputs with gradients, which a frozen embedding does not give.
        model.gradient_checkpointing_enable({"use_reentrant": False})
    speed_up(model)


def _policy_problem(model: PreTrainedModel) -> str | None:
    """Why logprobs from hidden states times head would silently differ from the engine's."""
    problem = logits_problem(model)
    if problem is None:
        return noise_problem(model)
    return (
        f"the logits of a {model.config.model_type} model are not its hidden states times its head, which is what the "
        f"trainer computes: {problem}. Choose a model of another family (llama, mistral, qwen2, qwen3 and most others "
        "do nothing more). If it is a factor, and the head is not tied to the embedding, multiply lm_head.weight by it "
        "and set it to 1 in config.json"
    )


def _refuse(problem: str | None, path: Path) -> None:
    if problem is not None:
        raise ConfigError(f"model.path {path}: {problem}")
