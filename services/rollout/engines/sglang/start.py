"""Starts an engine from the settings: launches or attaches to a server, and checks it."""

import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.services.rollout.engines.protocol import InFlight, Routes
from headrace.services.rollout.engines.sglang.checks import ServedModelShape, check_server, read_shape
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.engine import EngineOptions, SGLangEngine
from headrace.services.rollout.engines.sglang.flags import LaunchPlan, check_plan, shims_for
from headrace.services.rollout.engines.sglang.hashing import Hashing
from headrace.services.rollout.engines.sglang.process import ServerProcess, free_port, until_ready
from headrace.services.rollout.engines.sglang.requests import (
    ServerLimits,
    vocabulary_body,
    warm_up_body,
)
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.process.environment import CUMEM, SGLANG_CUMEM, nccl_cumem
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

log = get_logger("rollout.sglang")

_CHECK_S = 30.0
"""Timeout for the info requests to a server that is ready."""
_ASK_S = 120.0
_NEVER_UPDATED = "default"
"""SGLang's version name for weights that were never updated."""
_HARDWARE = """
import json, torch
devices = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
nccl = ".".join(map(str, torch.cuda.nccl.version())) if devices and torch.distributed.is_nccl_available() else ""
print(json.dumps({"devices": devices, "nccl": nccl}))
"""


async def start_engine(settings: RolloutSettings, lock: GpuLock | None = None) -> SGLangEngine:
    """Launches a server, or attaches to one, and checks it. `lock` guards a GPU shared with the trainer.

    Must run on the main thread's loop. Raises ConfigError for unsupported settings or an unsuitable server,
    TransientError for a server that is not ready in time.
    """
    shape = read_shape(settings.model.path)
    table = settings.rollout.sglang
    process: ServerProcess | None = None
    if table.urls:
        client = _attached(settings)
    else:
        plan = _launch_plan(settings)
        check_plan(plan)
        python = _python(table.venv)
        client = SGLangClient(f"http://{plan.host}:{plan.port}", api_key=plan.api_key, admin_key=plan.admin_key)
        process = await ServerProcess.launch(
            plan, python, run_dir=settings.run_dir, name=f"rollout-{settings.instance}.sglang", lock=lock
        )
    try:
        await until_ready(client, process, table.start_timeout_s)
        limits = await _checked(client, shape, settings)
        routes = await _routes(settings)
        options = _options(settings, routes, limits)
        options = replace(options, loaded_checksums=await _loaded_checksums(client, process, options, settings))
    except BaseException:
        await client.close()
        if process is not None:
            await process.end()
        raise
    log.info("server_checked", url=client.url, max_requests=limits.max_requests, context=limits.context_length)
    return SGLangEngine(client, process, limits, options)


async def _checked(client: SGLangClient, shape: ServedModelShape, settings: RolloutSettings) -> ServerLimits:
    table = settings.rollout
    try:
        limits = check_server(
            await client.server_info(_CHECK_S),
            await client.model_info(_CHECK_S),
            shape,
            tp=table.sglang.tp,
            dtype=settings.model.dtype,
            fp32_head=settings.model.widens_head,
            context_length=table.context_length,
            deterministic=table.deterministic,
            most_kept=table.sampling.most_kept,
        )
        await _first_requests(client, shape.vocab, table.sglang.start_timeout_s)
    except ContractError as error:
        raise ConfigError(f"the SGLang server at {client.url}: {error}") from error
    return limits


async def _loaded_checksums(
    client: SGLangClient, process: ServerProcess | None, options: EngineOptions, settings: RolloutSettings
) -> Mapping[str, str]:
    """Checksums of what the server loaded from `model.path`; empty if it may hold other weights, or cannot hash them.

    Raises TransientError for a server that does not answer: later calls would queue behind this one. An attached server
    still holds them while its version is unset (SGLang 0.5.23, `arg_groups/fields/serving.py`, 172).
    """
    if not options.checksum_format:
        return {}
    if process is None and (await client.model_info(_CHECK_S)).get("weight_version") != _NEVER_UPDATED:
        log.warning("loaded_checksums_unknown", url=client.url, reason="the server has taken weights before")
        return {}
    hashing = Hashing(client, ranks=options.routes.ranks, on_gpu=options.on_gpu)
    try:
        hashing.expect_folder(settings.model.path, settings.model.dtype)
        # On a GPU the first call compiles a kernel.
        return await hashing.checksums(settings.rollout.sglang.start_timeout_s)
    except ContractError as error:
        log.warning("loaded_checksums_unknown", url=client.url, reason=str(error))
        return {}


async def _first_requests(client: SGLangClient, vocab: int, timeout_s: float) -> None:
    """Warms the server up and checks its vocabulary; raises ConfigError if that is larger than the model folder's.

    On a GPU a server's first requests compile kernels, for minutes if none are cached. That belongs to the start, since
    later requests have shorter deadlines.
    """
    await client.generate(warm_up_body(), timeout_s)
    # The server does not report the size of its vocabulary, but it refuses a token beyond it.
    await client.generate(vocabulary_body(vocab - 1), timeout_s)
    try:
        await client.generate(vocabulary_body(vocab), timeout_s)
    except ContractError:
        return
    raise ConfigError(f"the SGLang server's vocabulary has more than the {vocab} tokens of model.path")


def _attached(settings: RolloutSettings) -> SGLangClient:
    table = settings.rollout.sglang
    index = settings.number
    if index >= len(table.urls):
        raise ConfigError(f"rollout.sglang.urls: {len(table.urls)} servers for replica {index}; give one a replica")
    return SGLangClient(
        table.urls[index], api_key=_key(table.api_key_file, ""), admin_key=_key(table.admin_key_file, "")
    )


def _launch_plan(settings: RolloutSettings) -> LaunchPlan:
    table, own = settings.rollout, settings.rollout.sglang
    index, host, device = settings.number, "127.0.0.1", _device(settings)
    rows = _rows(settings)
    return LaunchPlan(
        model_path=settings.model.path,
        dtype=settings.model.dtype,
        fp32_head=settings.model.widens_head,
        device=device,
        host=host,
        one_machine=settings.reach == host,
        port=own.port + index if own.port else free_port(host),
        api_key=_key(own.api_key_file, secrets.token_hex(24)),
        admin_key=_key(own.admin_key_file, secrets.token_hex(24)),
        max_requests=own.max_running_requests or (rows + 1 if rows else 0),
        tp=own.tp,
        base_gpu_id=own.first_gpu(index),
        mem_fraction_static=own.mem_fraction_static,
        max_total_tokens=own.max_total_tokens,
        context_length=table.context_length,
        deterministic=table.deterministic,
        threads=settings.run.threads,
        extra_args=own.extra_args,
        env={CUMEM: nccl_cumem()} | own.env,
        lora=settings.model.lora,
        python_path=shims_for(device, own.python_path),
        takes_turns=table.gpu_sharing == "turns",
    )


def _options(settings: RolloutSettings, routes: Routes, limits: ServerLimits) -> EngineOptions:
    table = settings.rollout
    return EngineOptions(
        dtype=settings.model.dtype,
        routes=routes,
        checksum_format=_checksum_format(settings, routes, limits),
        # Hashing, and the canary's shape, need kernels of their own.
        first_verify_s=0.0 if _device(settings) == "cpu" else table.sglang.start_timeout_s,
        on_gpu=_device(settings) != "cpu",
        adapters=settings.model.lora.rank > 0,
        in_flight=InFlight(table.in_flight),
        max_rows=_rows(settings),
        engine_timeout_s=table.engine_timeout_s,
        request_timeout_s=table.sglang.request_timeout_s,
    )


def _rows(settings: RolloutSettings) -> int:
    """Rollouts at a time, at least those of a group; 0 = the server's own limit."""
    rows = settings.rollout.max_rows
    return max(rows, settings.group_rows) if rows else 0


def _checksum_format(settings: RolloutSettings, routes: Routes, limits: ServerLimits) -> str:
    """Name, in the trainer's table, of the server's layout and hash of its tensors."""
    if settings.model.lora.rank:
        return ""  # Adapters are verified by the digests of their file.
    if _device(settings) == "cpu":
        # SGLang's CPU kernels pad each rank's shard by rules of their own.
        return "sglang-sha256" if routes.ranks == 1 else "sglang-ranks"
    experts = "+experts" if limits.plain_experts else ""
    return f"sglang-device{experts}" + (f"/{routes.ranks}" if routes.ranks > 1 else "")


async def _routes(settings: RolloutSettings) -> Routes:
    table = settings.rollout.sglang
    if _device(settings) == "cpu":
        return Routes(backends=("gloo",), ranks=table.tp)
    if table.urls:
        nccl, devices = table.nccl_version, table.devices
    else:
        nccl, devices = await _hardware(_python(table.venv))
        first = table.first_gpu(settings.number)
        if first + table.tp > len(devices):
            raise ConfigError(
                f"rollout.sglang.base_gpu_id: replica {settings.number} takes GPUs {first} to {first + table.tp - 1}, "
                f"but the server's torch sees {len(devices)}"
            )
        devices = devices[first : first + table.tp]
    backends = ("nccl", "gloo") if nccl and devices else ("gloo",)
    cumem = table.env.get(CUMEM, SGLANG_CUMEM if table.urls else nccl_cumem())
    return Routes(backends=backends, ranks=table.tp, nccl_version=nccl, nccl_cumem=cumem, devices=devices)


async def _hardware(python: Path) -> tuple[str, tuple[str, ...]]:
    """NCCL version and GPU UUIDs, as reported by the torch of the server's environment."""
    asking = await asyncio.create_subprocess_exec(
        *(python, "-c", _HARDWARE), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        out, _ = await wait_for(asking.communicate(), _ASK_S, "the server's torch to name its GPUs")
        found = json.loads(out.splitlines()[-1])
        return str(found["nccl"]), tuple(map(str, found["devices"]))
    except (ValueError, IndexError, KeyError) as error:
        raise ConfigError(f"rollout.sglang.venv: its torch cannot name the GPUs ({python})") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            asking.kill()


def _device(settings: RolloutSettings) -> str:
    device = settings.rollout.sglang.device
    return settings.run.device.partition(":")[0] if device == "auto" else device


def _python(venv: Path) -> Path:
    python = venv / "bin" / "python" if venv.parts else Path(sys.executable)
    if not python.is_file():
        makes = "`make gpu` makes one, on a CPU deploy/sglang-cpu/install.sh"
        raise ConfigError(f"rollout.sglang.venv: there is no {python}; {makes}")
    return python


def _key(file: Path, otherwise: str) -> str:
    if not file.parts:
        return otherwise
    try:
        key = file.read_text().strip()
    except OSError as error:
        raise ConfigError(f"rollout.sglang: the key file {file}: {error.strerror}") from error
    if not key:
        raise ConfigError(f"rollout.sglang: the key file {file} is empty")
    return key
