"""What all probes share: the device they are on, and the one JSON line in which they end."""

import argparse
import json
import sys
from typing import Any

import torch

TORCH_CUDA = "cuda:0"


def parser(description: str) -> argparse.ArgumentParser:
    """With `--on`, the device."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    return made


def device_of(on: str) -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device(TORCH_CUDA if on == "cuda" else "cpu")


def synchronize(device: torch.device) -> None:
    """Waits for all that was queued there."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def end(*, ok: bool, said: str, **numbers: Any) -> None:
    """The probe's last words."""
    sys.stdout.write(json.dumps({"ok": ok, "said": said, **numbers}) + "\n")
    sys.stdout.flush()
