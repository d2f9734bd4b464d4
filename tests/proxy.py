"""A TCP proxy in front of a Redis server that loses replies: the request arrives, the answer does not."""

import asyncio
import contextlib


class LossyProxy:
    """Cuts the connection instead of passing on the reply of every `every`-th request that contains `word`."""

    def __init__(self, port: int, *, word: bytes, every: int) -> None:
        self._upstream = port
        self._word = word
        self._every = every
        self._seen = 0
        self.lost = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Once its clients are gone: a connection that outlived the loop would be an error of whichever test comes."""
        assert self._server is not None
        self._server.close()
        while self._serving:
            await asyncio.wait(self._serving, timeout=60)

    async def _serve(self, client: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        upstream, request = await asyncio.open_connection("127.0.0.1", self._upstream)
        doomed = asyncio.Event()
        pumps = [
            asyncio.create_task(self._requests(client, request, doomed)),
            asyncio.create_task(self._replies(upstream, answer, doomed)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for writer in (request, answer):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _requests(
        self, client: asyncio.StreamReader, request: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        while data := await client.read(65536):
            if self._word in data:
                self._seen += 1
                if self._seen % self._every == 0:
                    self.lost += 1
                    doomed.set()
            request.write(data)
            await request.drain()

    async def _replies(
        self, upstream: asyncio.StreamReader, answer: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        while data := await upstream.read(65536):
            if doomed.is_set():
                return
            answer.write(data)
            await answer.drain()
