"""Heavy checks, each run in a process of its own: `python -P -m headrace.doctor.probe torch|sandbox`.

Prints one JSON object. A check that crashes or hangs does not affect the others.
"""

import json
import sys
from typing import Any

from headrace.wire.errors import ConfigError


def look_at_torch() -> dict[str, object]:
    """Reports version and devices, and whether a one-rank collective works: gloo, and NCCL if there is a GPU."""
    import torch

    found: dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda, "devices": [], "nccl": ""}
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            of = torch.cuda.get_device_properties(number)
            free, total = torch.cuda.mem_get_info(number)
            device = {"name": of.name, "capability": f"{of.major}.{of.minor}", "free": free, "total": total}
            found["devices"].append(device)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        found["nccl_error"] = _collective("nccl", "cuda:0")
    found["gloo_error"] = _collective("gloo", "cpu")
    return found


def _collective(backend: str, device: str) -> str:
    """Why an all-reduce of one rank fails; empty if it works."""
    import torch
    from torch import distributed
    from torch._C._distributed_c10d import HashStore

    try:
        distributed.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        try:
            value = torch.ones(1, device=device)
            distributed.all_reduce(value)
            return "" if float(value) == 1.0 else f"one and nothing is {float(value)}"
        finally:
            distributed.destroy_process_group()
    except (RuntimeError, ValueError, OSError) as error:
        return str(error).splitlines()[0]


def look_at_sandbox() -> dict[str, object]:
    """Starts a sandbox and runs the isolation checks in it."""
    from headrace.services.reward.sandbox.inside.confine import Limits
    from headrace.services.reward.sandbox.probe import check
    from headrace.services.reward.sandbox.slot import Slot

    slot = Slot(0, Limits(timeout_s=10.0), None)
    try:
        check(slot)
    except ConfigError as error:
        return {"error": str(error)}
    finally:
        slot.kill()
    return {"error": ""}


if __name__ == "__main__":
    looks = {"torch": look_at_torch, "sandbox": look_at_sandbox}
    sys.stdout.write(json.dumps(looks[sys.argv[1]]()) + "\n")
