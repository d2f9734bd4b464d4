"""An endpoint that fails in every way: the right kind, bounded tries, no stall past the deadline."""

import asyncio
import functools
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from headrace.services.reward.endpoint import Endpoint, EndpointError, client
from headrace.services.reward.scorer import Context
from tests.integration.reward.endpoint.scripted import (
    Answer,
    Request,
    Scripted,
    after,
    answer,
    hang,
    ok,
    raw,
    reset,
    scripted,
)

LONG_S = 20.0
WATCHDOG_S = 120.0
"""Beyond all deadlines but one, and no time of any answer: a peer that hangs does so for an hour."""


def endpoint(server: Scripted, **options: Any) -> Endpoint:
    # Where no answer is late the limits must outlast a machine that stands still for a moment.
    given = {"attempt_s": 5.0, "deadline_s": LONG_S, "retries": 2, "concurrency": 4} | options
    timeout_s = given.pop("timeout_s", 60.0)
    context = Context(component="judge", timeout_s=timeout_s, allow_hosts=(f"127.0.0.1:{server.port}",))
    return Endpoint(server.url, context=context, what="test", **given)


async def failure(server: Scripted, **options: Any) -> EndpointError:
    caller = endpoint(server, **options)
    with pytest.raises(EndpointError) as caught:
        async with asyncio.timeout(WATCHDOG_S):
            await caller.post("/ask", {"a": 1})
    await caller.close()
    return caught.value


async def test_an_answer_comes_back_parsed_and_the_request_went_out_whole() -> None:
    async with scripted() as server:
        caller = endpoint(server)
        assert await caller.post("/ask", {"text": "snow \u2603"}) == {"echo": {"text": "snow \u2603"}}
        assert server.requests[0].path == "/ask"
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert server.requests[0].headers["accept-encoding"] == "identity"
        assert "authorization" not in server.requests[0].headers
        await caller.close()


@pytest.mark.parametrize(
    ("statuses", "kind", "asked"),
    [((500, 502, 503, 429, 408), "busy", 3), ((401, 403, 404), "down", 1), ((400, 413, 422), "refused", 1)],
)
async def test_each_status_maps_to_one_kind_and_only_busy_is_retried(
    statuses: tuple[int, ...], kind: str, asked: int
) -> None:
    for status in statuses:
        async with scripted(otherwise=functools.partial(lambda code, _: answer(code, b"its words"), status)) as server:
            found = await failure(server)
            assert (found.kind, len(server.requests)) == (kind, asked), status
            assert "its words" in str(found)
    assert (await failure(server)).kind == "down", "nobody listens at its port any more"


async def test_an_answer_after_two_busy_ones_counts_and_so_does_each_try() -> None:
    requests, retries = client.metrics.ENDPOINT_REQUESTS, client.metrics.ENDPOINT_RETRIES.labels("judge")
    counters = (requests.labels("judge", "busy"), requests.labels("judge", "ok"), retries)
    before = [one._value.get() for one in counters]
    async with scripted(answer(503), answer(429), ok({"fine": 1})) as server:
        caller = endpoint(server)
        assert await caller.post("/", {}) == {"fine": 1}
        await caller.close()
    assert [one._value.get() - was for one, was in zip(counters, before, strict=True)] == [2, 1, 2]


async def test_retry_after_is_honoured_within_the_deadline() -> None:
    date = formatdate(time.time() + 2, usegmt=True)
    async with scripted(answer(429, b"{}", "Retry-After: 1"), answer(503, b"{}", f"Retry-After: {date}")) as server:
        caller = endpoint(server, deadline_s=30)
        begin = time.monotonic()
        assert "echo" in await caller.post("/", {})
        assert time.monotonic() - begin > 0.9
        await caller.close()


async def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    async with scripted(otherwise=lambda _: answer(429, b"{}", "Retry-After: 86400")) as server:
        # Nor is the deadline waited for, which is beyond the watchdog.
        found = await failure(server, timeout_s=3600.0, deadline_s=3600.0)
        assert found.kind == "busy" and "(1 try)" in str(found)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 405, 451])
async def test_a_forbidden_request_fails_alone_while_others_are_served(status: int) -> None:
    def reply(request: Request) -> Answer:
        return answer(status, b"blocked") if request.body["bad"] else after(0.2, ok({}))

    async with scripted(otherwise=reply) as server:
        caller = endpoint(server)
        # The ban is faster than the others' answers: it waits for them before it speaks for all.
        first, *others = await asyncio.gather(
            caller.post("/", {"bad": True}),
            *(caller.post("/", {"bad": False}) for _ in range(6)),
            return_exceptions=True,
        )
        assert others == [{}] * 6
        assert isinstance(first, EndpointError) and first.kind == "refused" and "blocked" in str(first)
        with pytest.raises(EndpointError) as caught:
            await caller.post("/", {"bad": True})
        assert caught.value.kind == "refused"
        await caller.close()


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\n", b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"half": '], ids=len
)
async def test_a_server_that_hangs_ends_with_the_deadline(begin: bytes) -> None:
    async with scripted(otherwise=lambda _: hang(begin)) as server:
        found = await failure(server, attempt_s=0.2, deadline_s=1.5, retries=1000)
        assert found.kind == "busy" and "no answer in time" in str(found)
        # The deadline ended it, not the number of tries.
        assert 2 <= len(server.requests) < 1000


async def test_a_reset_before_the_answer_is_busy_and_one_within_it_truncates() -> None:
    async with scripted(otherwise=lambda _: reset()) as server:
        assert (await failure(server)).kind == "busy"
    half = b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"half": '
    async with scripted(otherwise=lambda _: raw(half)) as server:
        found = await failure(server)
        assert found.kind == "bad_answer" and "truncated after 9 bytes" in str(found)
        assert len(server.requests) == 3


BODIES = [b'{"cut": ', b"", b"<html>", b'{"a": NaN}', b"[" * 100_000, b"\xff\xfe", b'{"a": 1} {"b": 2}']
BAD = [*(answer(200, body) for body in BODIES), raw(b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{"fine": 1}')]


async def test_a_body_that_is_not_json_of_its_length_is_a_bad_answer() -> None:
    for bad in BAD:
        async with scripted(otherwise=functools.partial(lambda given, _: given, bad)) as server:
            assert (await failure(server)).kind == "bad_answer"
    body = b'{"a": "' + b"x" * (10 << 20) + b'"}'
    async with scripted(otherwise=lambda _: answer(200, body)) as server:
        found = await failure(server, max_bytes=1 << 20)
        assert found.kind == "bad_answer" and "larger than 1048576" in str(found)
        assert len(server.requests) == 1


async def test_no_more_requests_than_agreed_are_in_flight_and_all_end() -> None:
    now = most = 0

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        await ok({"fine": 1})(writer)

    async with scripted(otherwise=lambda _: slow) as server:
        caller = endpoint(server, concurrency=3)
        assert len(await asyncio.gather(*(caller.post("/", {}) for _ in range(20)))) == 20
        assert most == 3
        await caller.close()


async def test_the_key_comes_from_its_file_and_appears_in_no_message(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-secret\n")
    async with scripted(otherwise=lambda _: answer(401, b"bad key sk-secret")) as server:
        found = await failure(server, api_key_file=key)
        assert server.requests[0].headers["authorization"] == "Bearer sk-secret"
        assert found.kind == "down" and "sk-secret" not in str(found) and "***" in str(found)
