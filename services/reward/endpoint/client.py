"""A client of one endpoint: bounded retries, deadlines, caps, and no way to anywhere else."""

import asyncio
import json
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from headrace.services.reward import metrics
from headrace.services.reward.endpoint.answers import read_answer
from headrace.services.reward.endpoint.bans import Bans
from headrace.services.reward.endpoint.errors import EndpointError, Kind
from headrace.services.reward.endpoint.request import RequestBudget, request_s
from headrace.services.reward.endpoint.target import Target, read_target
from headrace.services.reward.scorer import Context
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.telemetry.logs import get_logger

log = get_logger("reward")

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 8.0
_MAX_BYTES = 4 << 20


class Endpoint:
    """Posts JSON to one server that the config names; redirects and the environment's proxies are not followed."""

    def __init__(
        self,
        url: str,
        *,
        context: Context,
        what: str,
        attempt_s: float | None,
        deadline_s: float | None,
        retries: int,
        max_bytes: int = _MAX_BYTES,
        concurrency: int,
        api_key_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Raises ConfigError for a URL, key or certificate that cannot work or must not be used.

        `deadline_s` bounds all tries of a request from its turn on (None: the rubric's `timeout_s`), `attempt_s` one
        try (None: half of that); `max_bytes` an answer; `concurrency` requests at a time. `ca_file`: certificates to
        trust in place of the public ones.
        """
        self.what = f"{context.component}: {what}"
        self._label = context.component
        deadline_s = request_s(deadline_s, context)
        attempt_s = attempt_s or deadline_s / 2
        self._attempt_s, self._deadline_s, self._retries = attempt_s, deadline_s, retries
        self._max_bytes, self._concurrency = max_bytes, concurrency
        self._target = read_target(url, context.allow_hosts, self.what)
        self._key = _read_key(api_key_file, self._target, self.what)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=None,
            trust_env=False,
            verify=_tls(ca_file, self.what),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=concurrency),
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._waiting = 0
        self._bans = Bans()
        self._is_checked = False

    @property
    def url(self) -> str:
        """The base URL, in its one form."""
        return self._target.url

    async def check(self) -> None:
        """Raises ConfigError if the name stands for an address that must not be called. A name that is not known
        yet is none: the endpoint may start after us, and is checked before its first request.
        """
        try:
            await wait_for(self._check_address(), self._attempt_s, f"the address of {self._target.host}")
        except (OSError, TimeoutError) as error:
            log.warning("endpoint_not_found_yet", endpoint=self._label, url=self.url, error=str(error))

    async def _check_address(self) -> None:
        found = await asyncio.get_running_loop().getaddrinfo(self._target.host, self._target.port)
        self._target.check([str(entry[4][0]) for entry in found], self.what)
        self._is_checked = True

    @asynccontextmanager
    async def turn(self, errand: RequestBudget | None = None) -> AsyncIterator[float]:
        """Waits for one of the `concurrency` places; gives the time (of the loop's clock) by which its holder ends.

        `errand`: the request budget of the scorer call; none = one of its own. Raises EndpointError if it is used up.
        """
        errand = errand or RequestBudget(self._deadline_s)
        try:
            with self._bans.request():
                async with errand.waiting():
                    await self._place()
                try:
                    yield errand.begin(self._deadline_s)
                finally:
                    self._slots.release()
            errand.note(None)
        except EndpointError as error:
            errand.note(error)
            if error.is_ban and await self._bans.spare_others(errand.left_s()):
                raise EndpointError("refused", error.message, is_ban=True) from error
            raise

    async def _place(self) -> None:
        # Every request ahead ends by its deadline, so the wait has one too.
        longest_s = (self._waiting // self._concurrency + 1) * self._deadline_s * 1.1 + 1
        self._waiting += 1
        try:
            await wait_for(self._slots.acquire(), longest_s, f"a turn at {self.what}")
        finally:
            self._waiting -= 1

    async def post(
        self, path: str, body: Mapping[str, object], *, errand: RequestBudget | None = None, until: float | None = None
    ) -> object:
        """The parsed JSON of the answer; raises EndpointError when no try is left.

        `path` is appended to the base URL. `errand` as for `turn`. `until`: the caller holds a turn, and this
        is its end.
        """
        if until is None:
            async with self.turn(errand) as end:
                return await self.post(path, body, until=end)
        content = json.dumps(body, allow_nan=False).encode()
        clock = asyncio.get_running_loop().time
        for tries in range(1, self._retries + 2):
            try:
                return await self._try(path, content, min(self._attempt_s, until - clock()))
            except EndpointError as error:
                pause_s = max(error.after_s, _pause_s(tries))
                if not error.may_retry or tries > self._retries or clock() + pause_s >= until:
                    # Without times: one fault has one message, so that logs and counts can distinguish it from others.
                    spent = f"{tries} {'try' if tries == 1 else 'tries'}"
                    words = f"{self.what} at {self.url}{path}: {error.message} ({spent})"
                    raise EndpointError(error.kind, words, is_ban=error.is_ban) from error
            metrics.ENDPOINT_RETRIES.labels(self._label).inc()
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Drops all connections."""
        await self._http.aclose()

    async def _try(self, path: str, content: bytes, seconds: float) -> object:
        begin = time.monotonic()
        outcome = "cancelled"
        try:
            answer = await self._ask(path, content, seconds)
            outcome = "ok"
            self._bans.served()
            return answer
        except EndpointError as error:
            outcome = error.kind
            raise
        finally:
            metrics.ENDPOINT_REQUESTS.labels(self._label, outcome).inc()
            metrics.ENDPOINT_SECONDS.labels(self._label).observe(time.monotonic() - begin)

    async def _ask(self, path: str, content: bytes, seconds: float) -> object:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                if not self._is_checked:
                    await self._check_address()
                async with self._http.stream("POST", self.url + path, content=content) as answer:
                    return await read_answer(answer, self._max_bytes, self._key)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise EndpointError("busy", "no answer in time", may_retry=True) from error
        except ConfigError as error:
            raise EndpointError("down", str(error)) from error
        except socket.gaierror as error:
            raise EndpointError("down", f"{self._target.host}: {error}", may_retry=True) from error
        except httpx.TransportError as error:
            kind: Kind = "down" if isinstance(error, httpx.ConnectError) else "busy"
            raise EndpointError(kind, f"{type(error).__name__} {error}".strip(), may_retry=True) from error


def _pause_s(tries: int) -> float:
    """Before the next try: doubled each time, with jitter, so that a crowd does not come back at once."""
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (tries - 1))
    return random.uniform(0.5, 1.0) * longest


def _read_key(file: Path | None, target: Target, what: str) -> str:
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: api_key_file {file}: {type(error).__name__}: it must hold the key alone") from None
    if not key or not key.isprintable() or " " in key:
        raise ConfigError(f"{what}: api_key_file {file} must hold the key alone, on one line")
    if target.scheme == "http" and not target.is_listed:
        raise ConfigError(f"{what} at {target.url}: a key is not sent in the clear: use https://")
    return key


def _tls(file: Path | None, what: str) -> ssl.SSLContext:
    if file is None:
        return httpx.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{what}: ca_file {file}: {error}") from None
