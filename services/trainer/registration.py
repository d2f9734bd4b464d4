"""Registers the trainer with the orchestrator: with the fates of all its groups, in as many calls as they take."""

import asyncio
import time
from collections.abc import Iterator
from typing import TypeAlias

from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.peers.outage import Outage
from headrace.wire.peers.rpc import call
from headrace.wire.v1 import orchestrator_pb2, orchestrator_pb2_grpc

PAGE = 100_000
"""Fates of one call: some MiB, where 64 MiB are the most that a message may have."""
_CALL_S = 4.0
"""A peer that does not answer at all is reported as soon as one that refuses."""
_FATES_PER_S = 20_000
"""The orchestrator writes at least so many into its database."""
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 2.0
_WHAT = "the orchestrator to register"

Stub: TypeAlias = "orchestrator_pb2_grpc.OrchestratorServiceAsyncStub"


async def register(
    stub: Stub, request: orchestrator_pb2.RegisterTrainerRequest, *, timeout_s: float, address: str = ""
) -> int:
    """Registers and returns the incarnation of this life; retries an absent orchestrator for up to `timeout_s`.

    `address`: the orchestrator's, for the log and for `status`.
    """
    outage = Outage("orchestrator", address)
    end = time.monotonic() + timeout_s
    delay = _FIRST_DELAY_S
    while True:
        began = time.monotonic()
        limit = min(_CALL_S, max(end - time.monotonic(), _FIRST_DELAY_S))
        try:
            incarnation = await register_once(stub, request, call_s=limit)
            outage.over()
            return incarnation
        except TransientError as error:
            outage.failed(error, began=began)
            if time.monotonic() + delay > end:
                raise WaitTimeoutError(f"{_WHAT} the trainer ({error})", timeout_s) from error
        await asyncio.sleep(delay)
        delay = min(delay * 2, _LONGEST_DELAY_S)


async def register_once(
    stub: Stub, request: orchestrator_pb2.RegisterTrainerRequest, *, call_s: float = _CALL_S
) -> int:
    """Sends all pages and returns the incarnation.

    Raises TransientError where the orchestrator is away, or was restarted between two pages. The last page has more
    time than `call_s` where there are many fates: with it they are all recorded.
    """
    incarnation = 0
    for page in pages(request):
        is_last = page.page + 1 >= page.pages
        longer = len(request.fates) / _FATES_PER_S if is_last else 0.0
        answer = await call(stub.RegisterTrainer, page, timeout_s=call_s + longer, what=_WHAT)
        incarnation = answer.incarnation
    return incarnation


def pages(request: orchestrator_pb2.RegisterTrainerRequest) -> Iterator[orchestrator_pb2.RegisterTrainerRequest]:
    """The request itself if its fates fit one page; else one request a page, alike in all else. Pure."""
    count = -(-len(request.fates) // PAGE)
    if count <= 1:
        yield request
        return
    rest = orchestrator_pb2.RegisterTrainerRequest()
    rest.CopyFrom(request)
    del rest.fates[:]
    for number in range(count):
        page = orchestrator_pb2.RegisterTrainerRequest()
        page.CopyFrom(rest)
        page.fates.extend(request.fates[number * PAGE : (number + 1) * PAGE])
        page.page, page.pages = number, count
        yield page
