"""Checks of the GPU, the driver, torch and its collectives."""

from collections.abc import Mapping
from typing import Any

from headrace.config.schema import RunFile
from headrace.doctor.findings import Finding, ask_child, fail, note, ok, warn
from headrace.doctor.placement import device_files, gpu_rows, placement, shown, split
from headrace.doctor.wants import Wants
from headrace.supervisor.once import python

TORCH_S = 240.0
_GIB = 1 << 30


def driver(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Checks driver and GPU count with nvidia-smi."""
    try:
        rows = gpu_rows()
    except FileNotFoundError:
        said = "there is no nvidia-smi"
        if device_files():
            said += ", though there is a GPU"
        elif not wants.cuda:
            return note("gpu", "none; the demo and small models run on the CPU")
        fix = 'install the NVIDIA driver (docker: --gpus all and the container toolkit), or set run.device = "cpu"'
        return fail("gpu", said, fix)
    except OSError as error:
        return fail("gpu", f"nvidia-smi: {error}", "load the driver (modprobe nvidia), or install one for the kernel")
    if (count := shown(len(rows), environment.get("CUDA_VISIBLE_DEVICES"))) < wants.gpus:
        fix = "take fewer trainer.ranks, rollout.replicas or rollout.sglang.tp, or a machine with more GPUs"
        taken = placement(wants.resolved.config).in_words() if wants.resolved else "the config wants more"
        return fail("gpu", f"{count} GPUs, but {taken}", fix)
    said = f"{len(rows)} x {rows[0]}" if len(set(rows)) == 1 else "; ".join(rows)
    if wants.resolved and (fix := _idle(wants.resolved.config, count)):
        return warn("gpu", f"{said}; {count - wants.gpus} of them are idle", fix)
    return ok("gpu", said)


def _idle(config: RunFile, count: int) -> str:
    """Keys that put the idle of `count` GPUs to work; empty if there are none, or where the split is not two parts."""
    found = placement(config)
    apart = found.trainer and found.each and config.trainer.nodes == 1 and config.rollout.gpu_sharing != "turns"
    if found.needed >= count or not apart:
        return ""
    ranks, replicas = split(count, found.each)
    return (
        f"trainer.ranks = {ranks} and rollout.replicas = {replicas} use all (Compose: GPUS={count})" if replicas else ""
    )


def torch(wants: Wants, environment: Mapping[str, str]) -> Finding:
    """Imports torch in a process of its own: devices, NCCL, gloo."""
    found = _probe(environment)
    if isinstance(found, str):
        fix = "pip install --force-reinstall torch; on a CPU from https://download.pytorch.org/whl/cpu"
        return fail("torch", f"torch cannot be used: {found}", fix)
    devices = found["devices"]
    said = f"{found['version']}, " + (_devices(devices) if devices else "CPU")
    if found["gloo_error"]:
        fix = "gloo listens on the address of this host's name: make it resolve (/etc/hosts), or set GLOO_SOCKET_IFNAME"
        return fail("torch", f"{said}; gloo: {found['gloo_error']}", fix)
    if not devices and (wants.cuda or device_files()):
        fix = (
            "install a torch that was built for CUDA and a driver that is new enough for it: "
            "https://pytorch.org/get-started/locally"
        )
        return (fail if wants.cuda else warn)("torch", f"{said}: torch sees no GPU (CUDA {found['cuda']})", fix)
    if not devices:
        return ok("torch", f"{said}; gloo works")
    if found["nccl_error"]:
        fix = "NCCL_DEBUG=INFO prints the reason; most often more shared memory or a newer driver helps"
        return fail("torch", f"{said}; NCCL {found['nccl']}: {found['nccl_error']}", fix)
    busy = [number for number, one in enumerate(devices) if one["free"] < one["total"] // 2]
    if busy:
        fix = "end what runs there, or choose others by CUDA_VISIBLE_DEVICES"
        return warn("torch", f"{said}; more than half of GPU {busy[0]} is in use", fix)
    return ok("torch", f"{said}; NCCL {found['nccl']} and gloo work")


def _probe(environment: Mapping[str, str]) -> dict[str, Any] | str:
    return ask_child("the look at torch", python("headrace.doctor.probe", "torch"), environment, TORCH_S - 5)


def _devices(devices: list[dict[str, Any]]) -> str:
    first = devices[0]
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"{count}{first['name']} (compute {first['capability']}, {first['total'] / _GIB:.0f} GiB)"
