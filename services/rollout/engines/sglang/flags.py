"""Converts settings to the command line, config file and environment of a launched server. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.services.rollout.settings import TURN_MEMORY
from headrace.services.rollout.sglang_refusals import RAW_LOGPROBS
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError

SHIMS = Path(__file__).resolve().parents[4] / "deploy" / "sglang-cpu" / "shims"
"""Folder of stub modules in a checkout: SGLang imports the originals on every device, but calls none on a CPU."""

_CPU_TOKENS = 65536
_CPU_MEMORY = 0.1
_ADAPTERS = 4
"""Adapters per batch of the server: the last requests of an old adapter must not block those of the new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All inputs of a server's flags."""

    model_path: Path
    dtype: str
    fp32_head: bool = False
    """Compute logits in float32, regardless of `dtype`."""
    device: str
    """cpu or cuda"""
    host: str
    port: int
    api_key: str
    admin_key: str
    max_requests: int
    """0 = SGLang's choice, by the size of its cache."""
    tp: int = 1
    base_gpu_id: int = 0
    mem_fraction_static: float = 0.0
    max_total_tokens: int = 0
    context_length: int = 0
    deterministic: bool = False
    threads: int = 1
    one_machine: bool = True
    """The trainer runs on this machine too."""
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str]
    lora: LoraTable = field(default_factory=LoraTable)
    python_path: tuple[Path, ...] = ()
    takes_turns: bool = False
    """The server takes turns with a trainer on its GPU."""


def check_plan(plan: LaunchPlan) -> None:
    """Raises ConfigError for settings that SGLang does not support."""
    if plan.deterministic and plan.device == "cpu":
        raise ConfigError(
            "rollout.deterministic: SGLang's deterministic inference needs a GPU's attention kernels; "
            'use engine = "torch" on a CPU'
        )
    if plan.device != "cpu" and plan.dtype == "float32":
        # RMSNorm.forward_cuda and FlashAttention 3 (SGLang's choice on Hopper) support 16-bit types only.
        raise ConfigError('model.dtype: SGLang has no float32 kernels on a GPU; set it to "bfloat16"')
    if plan.device == "cpu" and plan.tp > 1:
        raise ConfigError(f"rollout.sglang.tp: {plan.tp}, but a CPU server has one rank")
    if plan.device == "cpu" and not plan.python_path:
        raise ConfigError(
            f"rollout.sglang.python_path: the stand-ins of deploy/sglang-cpu are not at {SHIMS}; name their folder"
        )


def shims_for(device: str, python_path: Sequence[Path], shims: Path = SHIMS) -> tuple[Path, ...]:
    """Folders for the server's PYTHONPATH; empty if none are needed or found."""
    if python_path:
        return tuple(python_path)
    return (shims,) if device == "cpu" and shims.is_dir() else ()


def server_config(plan: LaunchPlan) -> dict[str, object]:
    """Contents of the server's config file; it holds the keys, since any process can read a command line."""
    config: dict[str, object] = {
        "model-path": str(plan.model_path),
        "api-key": plan.api_key,
        "admin-api-key": plan.admin_key,
        "host": plan.host,
        "port": plan.port,
        "dtype": plan.dtype,
        "device": plan.device,
        "tp-size": plan.tp,
        "enable-metrics": True,
        # Otherwise an idle scheduler busy-waits on a core.
        "sleep-on-idle": True,
        # The canary must not queue behind rollouts.
        "enable-priority-scheduling": True,
        # The server's own warm-up sends its request without the key.
        "skip-server-warmup": True,
    }
    if plan.device == "cpu":
        config |= {
            "attention-backend": "torch_native",
            "disable-overlap-schedule": True,
            # Otherwise an idle server takes a whole core from the trainer.
            "sleep-on-idle": True,
        }
    else:
        config["base-gpu-id"] = plan.base_gpu_id
        if plan.takes_turns:
            config["enable-memory-saver"] = True
    if plan.lora.rank:
        config |= _lora_config(plan)
    share = TURN_MEMORY if plan.takes_turns else 0
    memory = plan.mem_fraction_static or (_CPU_MEMORY if plan.device == "cpu" else share)
    tokens = plan.max_total_tokens or (_CPU_TOKENS if plan.device == "cpu" else 0)
    optional = {
        "max-running-requests": plan.max_requests,
        "mem-fraction-static": memory,
        "max-total-tokens": tokens,
        "context-length": plan.context_length,
        "enable-deterministic-inference": plan.deterministic,
        "enable-fp32-lm-head": plan.fp32_head,
    }
    return config | {name: value for name, value in optional.items() if value}


def _lora_config(plan: LaunchPlan) -> dict[str, object]:
    """Flags for serving low-rank adapters."""
    found: dict[str, object] = {
        "enable-lora": True,
        "max-lora-rank": plan.lora.rank,
        "lora-target-modules": list(plan.lora.targets),
        "max-loras-per-batch": _ADAPTERS,
    }
    return found | ({"lora-backend": "torch_native"} if plan.device == "cpu" else {})


def environment(plan: LaunchPlan) -> dict[str, str]:
    """Environment variables of the server, in addition to inherited ones."""
    found = {
        # A paused server is alive: its health must not depend on a generated token.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        # A trainer under torchrun hosts the rendezvous itself.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        # Logprobs at the temperature of the draw, which is what the trainer computes.
        RAW_LOGPROBS: "false",
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        # Replaces the service's own path, which is for another interpreter.
        "PYTHONPATH": ":".join(str(folder) for folder in plan.python_path),
    }
    if plan.device == "cpu":
        found["OMP_NUM_THREADS"] = str(plan.threads)
    if plan.one_machine:
        # Otherwise gloo guesses an interface from the host name.
        found["GLOO_SOCKET_IFNAME"] = "lo"
    return found | dict(plan.env)
