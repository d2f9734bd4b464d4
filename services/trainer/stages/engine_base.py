"""QLoRA's base as the engines need it: a Hugging Face folder of the weights that the 4-bit layers compute with.

Engines merge adapters into plain weights. Merged into those before the rounding, they would make another policy than
the one that is trained.
"""

import json
from pathlib import Path

import torch

from headrace.services.trainer.distributed.topology import rank_device
from headrace.services.trainer.model.loading import load_rounded
from headrace.services.trainer.model.quantization import quantizer_version
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.offline.reference import folder_digest
from headrace.services.trainer.stages.parts import prepare_torch
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import copy_tokenizer
from headrace.wire.telemetry.logs import get_logger

_MARK = "made_from.json"
"""What the folder was made of; written last."""
log = get_logger("trainer.engine_base")


def write_engine_base(settings: TrainerSettings) -> Path:
    """Writes `RUN/base`, whole or not at all; one that was made of the same model in the same way stays.

    Raises ConfigError for a model that cannot be loaded or rounded.
    """
    device = rank_device(settings.run.device, 0)
    target = RunPaths(settings.run_dir).base
    facts = _facts(settings, device)
    if _read(target / _MARK) == facts:
        log.info("engine_base_kept", path=str(target))
        return target
    prepare_torch(settings, device)
    # `model.path` makes it again; but a damaged one with its mark would stay.
    with atomic.replaced_folder(target, durable=True) as aside:
        _write(settings, aside, device)
        (aside / _MARK).write_text(json.dumps(facts, indent=2))
    log.info("engine_base_written", path=str(target))
    return target


def _write(settings: TrainerSettings, folder: Path, device: torch.device) -> None:
    source = settings.model.path
    load_rounded(source, device=str(device), dtype=getattr(torch, settings.model.dtype)).save_pretrained(folder)
    copy_tokenizer(source, folder)


def _facts(settings: TrainerSettings, device: torch.device) -> dict[str, str]:
    return {
        "model": folder_digest(settings.model.path),
        "quantize": settings.model.lora.quantize,
        "dtype": settings.model.dtype,
        "device": device.type,
        "bitsandbytes": quantizer_version(),
    }


def _read(mark: Path) -> dict[str, str] | None:
    try:
        found: dict[str, str] = json.loads(mark.read_text())
    except (OSError, ValueError):
        return None
    return found
