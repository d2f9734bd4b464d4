"""Reads an answer within bounds: bytes, encoding, JSON."""

import json
import time
from email.utils import parsedate_to_datetime
from typing import NoReturn

import httpx

from headrace.services.reward.endpoint.errors import EndpointError

_NOT_SERVED = {401, 402, 404, 407, 410}
_BANS = {403, 405, 451}
_TRY_LATER = {408, 425, 429}
_WORDS = 2048
"""Bytes read of an error's body."""
_LONGEST = 200


async def read_answer(answer: httpx.Response, max_bytes: int, secret: str) -> object:
    """The parsed JSON of a 2xx answer; raises EndpointError for all else, its message without `secret`."""
    if answer.is_success:
        return _parse(await _read_whole(answer, max_bytes))
    status = answer.status_code
    if answer.has_redirect_location or 300 <= status < 400:
        raise EndpointError("down", f"it redirects ({status}), which is not followed: give the final URL")
    words = f"{status} {await _error_text(answer, secret)}".strip()
    if status in _NOT_SERVED:
        raise EndpointError("down", words)
    if status in _BANS:
        raise EndpointError("down", words, is_ban=True)
    if status in _TRY_LATER or status >= 500:
        raise EndpointError("busy", words, may_retry=True, after_s=_retry_after(answer))
    raise EndpointError("refused", words)


async def _read_whole(answer: httpx.Response, max_bytes: int) -> bytes:
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise EndpointError("bad_answer", f"the answer is compressed ({encoding[:20]!r}), which was not requested")
    size = 0
    chunks = []
    try:
        async for chunk in answer.aiter_raw():
            size += len(chunk)
            if size > max_bytes:
                raise EndpointError("bad_answer", f"the answer is larger than {max_bytes} bytes")
            chunks.append(chunk)
    except httpx.TransportError as error:
        raise EndpointError("bad_answer", f"the answer is truncated after {size} bytes", may_retry=True) from error
    return b"".join(chunks)


def _parse(body: bytes) -> object:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EndpointError("bad_answer", f"the answer is no JSON: {str(error)[:_LONGEST]}", may_retry=True) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


async def _error_text(answer: httpx.Response, secret: str) -> str:
    """The server's own words, as far as they fit a line."""
    body = b""
    try:
        async for chunk in answer.aiter_raw(_WORDS):
            body += chunk
            if len(body) >= _WORDS:
                break
    except httpx.TransportError:
        pass  # The status is enough.
    text = body.decode("utf-8", "replace")
    if secret:
        text = text.replace(secret, "***")
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())[:_LONGEST]


def _retry_after(answer: httpx.Response) -> float:
    """Seconds; 0 where the header is missing or unreadable."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        # By the server's clock, where it sends the date: this machine's may be another.
        date = answer.headers.get("date", "")
        now = parsedate_to_datetime(date).timestamp() if date else time.time()
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0
