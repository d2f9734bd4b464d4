"""How a server is launched: settings in, command line, config file and environment out. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.rollout.settings import TURN_MEMORY
from wire.errors import ConfigError
from wire.settings import LoraTable

SHIMS = Path(__file__).parents[4] / "deploy" / "sglang-cpu" / "shims"
"""Of a checkout. What they stand in for is imported by SGLang on every device and called on none of the CPU's ways."""

_OWN_FLAGS = (
    "--config",
    "--api-key",
    "--admin-api-key",
    "--model-path",
    "--host",
    "--port",
    "--tp-size",
    "--tensor-parallel-size",
    "--dp-size",
    "--data-parallel-size",
    "--pp-size",
    "--pipeline-parallel-size",
    "--enable-deterministic-inference",
    "--dtype",
    "--enable-fp32-lm-head",
    "--quantization",
    "--weight-version",
    "--skip-tokenizer-init",
    "--enable-memory-saver",
    "--enable-weights-cpu-backup",
)
_DANGEROUS_FLAGS = ("--enable-custom-logit-processor", "--custom-weight-loader")
_CPU_TOKENS = 65536
_CPU_MEMORY = 0.1
_ADAPTERS = 4
"""In one batch of the server: an old one's last requests must not keep the new one's waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything a server's flags depend on."""

    model_path: Path
    dtype: str
    fp32_head: bool = False
    """Logits in float32, whatever `dtype` is."""
    device: str
    """cpu or cuda"""
    host: str
    port: int
    api_key: str
    admin_key: str
    max_requests: int
    tp: int = 1
    base_gpu_id: int = 0
    mem_fraction_static: float = 0.0
    max_total_tokens: int = 0
    context_length: int = 0
    deterministic: bool = False
    threads: int = 1
    one_machine: bool = True
    """The trainer is on this machine too."""
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str]
    lora: LoraTable = field(default_factory=LoraTable)
    python_path: tuple[Path, ...] = ()
    takes_turns: bool = False
    """It shares its GPU with a trainer, one after the other."""


def check_plan(plan: LaunchPlan) -> None:
    """Raises ConfigError for what SGLang cannot do or must not be told."""
    if plan.deterministic and plan.device == "cpu":
        raise ConfigError(
            "rollout.deterministic: SGLang's deterministic inference needs a GPU's attention kernels; "
            'use engine = "torch" on a CPU'
        )
    if plan.device != "cpu" and plan.dtype == "float32":
        # RMSNorm.forward_cuda and FlashAttention 3 (SGLang's choice on Hopper) are built for 16 bits alone.
        raise ConfigError('model.dtype: SGLang has no float32 kernels on a GPU; set it to "bfloat16"')
    if plan.device == "cpu" and plan.tp > 1:
        raise ConfigError(f"rollout.sglang.tp: {plan.tp}, but a CPU server has one rank")
    for argument in plan.extra_args:
        _check_argument(argument)
    if plan.device == "cpu" and not plan.python_path:
        raise ConfigError(
            f"rollout.sglang.python_path: the stand-ins of deploy/sglang-cpu are not at {SHIMS}; name their folder"
        )


def _check_argument(argument: str) -> None:
    if not argument.startswith("--"):
        return
    flag = argument.partition("=")[0]
    # SGLang's parser takes any unambiguous beginning of a flag for the flag.
    for known in _DANGEROUS_FLAGS:
        if known.startswith(flag):
            raise ConfigError(f"rollout.sglang.extra_args: {argument} lets requests bring code; it is never given")
    for known in _OWN_FLAGS:
        if known.startswith(flag) or flag in ("--tp", "--dp", "--pp"):
            raise ConfigError(f"rollout.sglang.extra_args: {argument} is set by headrace from its own keys")


def shims_for(device: str, python_path: Sequence[Path], shims: Path = SHIMS) -> tuple[Path, ...]:
    """Folders for the server's PYTHONPATH; empty where none are needed, or none were found."""
    if python_path:
        return tuple(python_path)
    return (shims,) if device == "cpu" and shims.is_dir() else ()


def server_config(plan: LaunchPlan) -> dict[str, Any]:
    """The server's config file. The keys are in it, not on the command line that everybody may read."""
    config: dict[str, Any] = {
        "model-path": str(plan.model_path),
        "api-key": plan.api_key,
        "admin-api-key": plan.admin_key,
        "host": plan.host,
        "port": plan.port,
        "dtype": plan.dtype,
        "device": plan.device,
        "tp-size": plan.tp,
        "max-running-requests": plan.max_requests,
        "enable-metrics": True,
        # Else an idle scheduler spins on a core that trainer or neighbours could use.
        "sleep-on-idle": True,
        # The canary must not queue behind a long line of rollouts.
        "enable-priority-scheduling": True,
        # The warm-up asks the server over its own address without a key that it has.
        "skip-server-warmup": True,
    }
    if plan.device == "cpu":
        config |= {
            "attention-backend": "torch_native",
            "disable-overlap-schedule": True,
            # An idle server else takes a whole core from the trainer.
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
        "mem-fraction-static": memory,
        "max-total-tokens": tokens,
        "context-length": plan.context_length,
        "enable-deterministic-inference": plan.deterministic,
        "enable-fp32-lm-head": plan.fp32_head,
    }
    return config | {name: value for name, value in optional.items() if value}


def _lora_config(plan: LaunchPlan) -> dict[str, Any]:
    """The base model, the adapter in use, and the next one."""
    found: dict[str, Any] = {
        "enable-lora": True,
        "max-lora-rank": plan.lora.rank,
        "lora-target-modules": list(plan.lora.targets),
        "max-loras-per-batch": _ADAPTERS,
    }
    return found | ({"lora-backend": "torch_native"} if plan.device == "cpu" else {})


def environment(plan: LaunchPlan) -> dict[str, str]:
    """What the server's environment has beside what it inherits."""
    found = {
        # A paused server is alive: its health must not depend on a generated token.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        # A trainer under torchrun hosts the rendezvous itself.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        # Only what is named here: the service's own path is for another interpreter.
        "PYTHONPATH": ":".join(str(folder) for folder in plan.python_path),
    }
    if plan.device == "cpu":
        found["OMP_NUM_THREADS"] = str(plan.threads)
    if plan.one_machine:
        # gloo else guesses an interface from the host's name.
        found["GLOO_SOCKET_IFNAME"] = "lo"
    return found | dict(plan.env)
