"""Shared by all probes: the device option, and the JSON line that ends their output."""

import argparse
import json
import sys

import torch

TORCH_CUDA = "cuda:0"


def parser(description: str) -> argparse.ArgumentParser:
    """Makes a parser with `--on`, the device."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--on", choices=("cuda", "cpu"), default="cuda")
    return made


def device_of(on: str) -> torch.device:
    """The first GPU, or the CPU."""
    return torch.device(TORCH_CUDA if on == "cuda" else "cpu")


def synchronize(device: torch.device) -> None:
    """Waits for all work queued on a GPU; does nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def end(*, ok: bool, said: str, **numbers: object) -> None:
    """Writes the probe's result as its last line."""
    sys.stdout.write(json.dumps({"ok": ok, "said": said, **numbers}) + "\n")
    sys.stdout.flush()
