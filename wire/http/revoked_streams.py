"""Ends an answer that is still being sent when its request would be refused by now, such as for a retired token."""

import asyncio
from collections.abc import Callable

from starlette.types import Message, Send

CHECK_S = 1.0
"""Seconds between two looks at a stream's token; a stream that is silent is looked at with its next message."""


def until_refused(send: Send, is_refused: Callable[[], bool]) -> Send:
    """Forwards an answer's messages until `is_refused()`, then its end in place of all others.

    The server reports the end of an answer to its route as a disconnect, which ends a stream there.
    """
    loop = asyncio.get_running_loop()
    looked, is_ended = loop.time(), False

    async def send_or_end(message: Message) -> None:
        nonlocal looked, is_ended
        if is_ended:
            return
        now = loop.time()
        if message["type"] == "http.response.body" and message.get("more_body", False) and now - looked >= CHECK_S:
            looked = now
            if is_refused():
                is_ended = True
                message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return send_or_end
