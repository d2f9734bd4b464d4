"""Client of SGLang's HTTP API. Its paths and field names appear only here, in `requests` and in `checks`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from prometheus_client.metrics_core import Metric

from headrace.wire import tracing
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.telemetry.metrics import read_engine_metrics
from headrace.wire.v1 import common_pb2

_TIMEOUT = httpx.Timeout(None, connect=5.0)
"""No timeout per read: the whole call has a deadline of its own."""
BAD_ANSWER = "bad_answer"
"""Code of the ContractError for an invalid answer of the server."""


class SGLangClient:
    """Client of one server. Every call has a deadline.

    Raises TransientError when the server is unreachable, too slow or fails (5xx), ContractError when it refuses (4xx,
    or `success: false`) or when its answer is not a JSON object of the expected form (code `bad_answer`).
    """

    def __init__(self, url: str, *, api_key: str = "", admin_key: str = "") -> None:
        self.url = url.rstrip("/")
        self._keys = {False: api_key, True: admin_key or api_key}
        # One connection per request in flight; proxies from the environment are ignored.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.AsyncClient(base_url=self.url, limits=limits, trust_env=False)

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def is_ready(self, timeout_s: float) -> bool:
        """Whether the server is up and not paused."""
        try:
            answer = await self._http.get("/ready", headers=self._headers(False), timeout=timeout_s)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    async def server_info(self, timeout_s: float) -> dict[str, Any]:
        """The server's settings; queries the scheduler, so it also checks that the scheduler is alive."""
        return await self._ask("GET", "/server_info", None, timeout_s)

    async def model_info(self, timeout_s: float) -> dict[str, Any]:
        """The model being served and the version of its weights."""
        return await self._ask("GET", "/model_info", None, timeout_s)

    async def loads(self, timeout_s: float) -> tuple[int, int]:
        """Number of running and waiting requests, of all clients."""
        answer = await self._ask("GET", "/v1/loads?include=core", None, timeout_s)
        try:
            (load,) = answer["loads"]
            return int(load["num_running_reqs"]), int(load["num_waiting_reqs"])
        except (KeyError, TypeError, ValueError) as error:
            raise ContractError(BAD_ANSWER, f"/v1/loads: {error!r}") from error

    async def metrics(self, timeout_s: float) -> list[Metric]:
        """The server's Prometheus metrics named `sglang:...` (needs `--enable-metrics`). Works while paused, too."""
        text = await self._send("GET", "/metrics", None, timeout_s)
        try:
            return await asyncio.to_thread(read_engine_metrics, text)
        except ValueError as error:
            raise ContractError(BAD_ANSWER, f"/metrics: {error}") from error

    async def generate(self, body: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """Sends one generation request; waits while the server is paused."""
        return await self._ask("POST", "/generate", body, timeout_s)

    async def abort(self, request_id: str, timeout_s: float) -> None:
        """Aborts a request, which then returns what it has. Unknown ids are ignored."""
        await self._send("POST", "/abort_request", {"rid": request_id, "abort_all": False}, timeout_s, admin=True)

    async def pause(self, mode: str, timeout_s: float) -> None:
        """Pauses decoding; later control calls are ordered after it. Modes: retract, in_place."""
        await self._ask("POST", "/pause_generation", {"mode": mode}, timeout_s, admin=True)

    async def resume(self, timeout_s: float) -> None:
        """Continues decoding."""
        await self._ask("POST", "/continue_generation", {"torch_empty_cache": False}, timeout_s, admin=True)

    async def release_memory(self, timeout_s: float) -> None:
        """Releases the memory of weights, cache and CUDA graphs; the server must be paused, with nothing running.

        SGLang asserts that (`release_memory_occupation`, managers/scheduler_components/weight_updater.py:337 of
        0.5.23): otherwise its scheduler dies. The contents are lost, except for buffers that are not parameters.
        """
        await self._send("POST", "/release_memory_occupation", {}, timeout_s, admin=True)

    async def resume_memory(self, timeout_s: float) -> None:
        """Reallocates the memory, once after each release (same file, line 383); the weights must be sent again."""
        await self._send("POST", "/resume_memory_occupation", {}, timeout_s, admin=True)

    async def flush_cache(self, timeout_s: float) -> None:
        """Drops all cached keys and values; ContractError while requests are running."""
        await self._send("POST", "/flush_cache", None, timeout_s, admin=True)

    async def join_group(
        self, name: str, backend: str, host: str, port: int, rank: int, world_size: int, timeout_s: float
    ) -> None:
        """Joins a collective group; returns when all members have joined."""
        body = {
            "group_name": name,
            "backend": backend,
            "master_address": host,
            "master_port": port,
            "rank_offset": rank,
            "world_size": world_size,
        }
        await self._change("/init_weights_update_group", body, timeout_s)

    async def leave_group(self, name: str, timeout_s: float) -> None:
        """Leaves a collective group; ContractError if the server is not in it."""
        await self._change("/destroy_weights_update_group", {"group_name": name}, timeout_s)

    async def begin_update(self, timeout_s: float) -> None:
        """Opens the update session that `receive_bucket` needs."""
        await self._change("/begin_weight_update", {}, timeout_s)

    async def end_update(self, timeout_s: float) -> None:
        """Closes the session; ContractError if there is none."""
        await self._change("/end_weight_update", {}, timeout_s)

    async def receive_bucket(
        self, bucket: common_pb2.Bucket, group: str, version: str | None, timeout_s: float
    ) -> None:
        """Receives one broadcast of the group and loads its tensors; `version` is the weights' new version name."""
        body = {
            "names": [spec.name for spec in bucket.tensors],
            "dtypes": [spec.dtype for spec in bucket.tensors],
            "shapes": [list(spec.shape) for spec in bucket.tensors],
            "group_name": group,
            "load_format": "flattened_bucket",
            "flush_cache": False,
            "weight_version": version,
        }
        await self._change("/update_weights_from_distributed", body, timeout_s)

    async def load_folder(self, folder: str, version: str, timeout_s: float) -> None:
        """Loads a Hugging Face folder that the server can read."""
        body = {"model_path": folder, "weight_version": version, "flush_cache": False, "abort_all_requests": False}
        await self._change("/update_weights_from_disk", body, timeout_s)

    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        """Loads a low-rank adapter that the server can read; requests may name it from here on."""
        await self._change("/load_lora_adapter", {"lora_name": name, "lora_path": folder}, timeout_s)

    async def unload_adapter(self, name: str, timeout_s: float) -> None:
        """Unloads an adapter; returns when the last request that uses it has ended."""
        await self._change("/unload_lora_adapter", {"lora_name": name}, timeout_s)

    async def checksums(self, timeout_s: float, leave_out: Sequence[str] = ()) -> list[dict[str, str]]:
        """For each rank: tensor -> hash; without the tensors whose names contain an entry of `leave_out`."""
        body: dict[str, object] = {"action": "checksum"}
        if leave_out:
            body["skip_tensor_list"] = list(leave_out)
        answer = await self._change("/weights_checker", body, timeout_s)
        try:
            return [{str(name): str(value) for name, value in rank["checksums"].items()} for rank in answer["ranks"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ContractError(BAD_ANSWER, f"/weights_checker: {error!r}") from error

    async def _change(self, path: str, body: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        answer = await self._ask("POST", path, body, timeout_s, admin=True)
        if answer.get("success") is not True:
            reason = answer.get("message") or answer.get("error_message") or answer
            raise ContractError("engine_refused", f"{path}: {reason}")
        return answer

    async def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float, *, admin: bool = False
    ) -> dict[str, Any]:
        text = await self._send(method, path, body, timeout_s, admin=admin)
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise ContractError(BAD_ANSWER, f"{path}: no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise ContractError(BAD_ANSWER, f"{path}: {type(answer).__name__} in place of an object")
        return answer

    async def _send(
        self, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float, *, admin: bool = False
    ) -> str:
        headers = self._headers(admin)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._http.request(method, path, json=body, headers=headers, timeout=_TIMEOUT)
        except TimeoutError as error:
            raise TransientError(f"SGLang at {self.url}{path} has not answered for {timeout_s:.1f} s") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise TransientError(f"SGLang at {self.url}{path}: {type(error).__name__} {error}".rstrip()) from error
        if answer.status_code >= 500:
            raise TransientError(f"SGLang at {self.url}{path}: {answer.status_code} {_error_text(answer)}")
        if answer.status_code in (401, 403):
            raise ContractError("unauthorized", f"SGLang at {self.url}{path} does not take the key")
        if answer.status_code != 200:
            raise ContractError("engine_refused", f"{path}: {answer.status_code} {_error_text(answer)}")
        return answer.text

    def _headers(self, admin: bool) -> dict[str, str]:
        key = self._keys[admin]
        # A server with tracing adds its spans below ours.
        return ({"Authorization": f"Bearer {key}"} if key else {}) | tracing.carrier()


def _error_text(answer: httpx.Response) -> str:
    """The server's error message."""
    try:
        found = answer.json()
        words = found.get("message") or found.get("error")
        return str(words["message"] if isinstance(words, dict) else words)
    except (ValueError, AttributeError, KeyError):
        return answer.text[:200]
