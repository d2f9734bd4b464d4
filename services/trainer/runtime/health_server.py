"""Serves health and metrics over gRPC and HTTP in a process that offers nothing else.

Used by stages on given examples, and by the first process of every machine except rank 0's: the same probes fit all.
"""

from headrace.services.trainer import metrics
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.runtime.event_loop import BackgroundLoop
from headrace.services.trainer.service import SERVICE_NAME, http_app
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.host.disk import DiskWatch
from headrace.wire.http import serve_http
from headrace.wire.peers.rpc import SMALL_MESSAGE_BYTES
from headrace.wire.peers.rpc import serve as serve_rpc

_START_S = 30.0


class HealthServer:
    """Serves on a thread of its own."""

    def __init__(self, settings: TrainerSettings | StageSettings, doing: str = "loading the model") -> None:
        self._settings = settings
        self._background = BackgroundLoop()
        self._disk = DiskWatch(settings.run_dir, metrics.RUN_DIR_FREE.set, metrics.RUN_DIR_SIZE.set)
        self.doing = doing
        """Why the process is not ready, in words; empty = ready."""

    def start(self) -> None:
        """Starts to serve; raises ConfigError if a port is taken."""
        self._background.start()
        self._disk.start()
        self._background.call(self._serve(), _START_S, "the trainer's servers")

    async def _serve(self) -> None:
        settings = self._settings
        # The service name is registered for its health only; none of its calls is served.
        names = {SERVICE_NAME: lambda _server: None}
        self._rpc = await serve_rpc(
            names, settings.rpc_host, settings.grpc_port, ready=self._ready, most_bytes=SMALL_MESSAGE_BYTES
        )
        self._http = await serve_http(http_app(self._ready, settings), settings.host, settings.http_port)

    def _ready(self) -> str | None:
        return self.doing or None

    def stop(self) -> None:
        """Stops servers and threads."""
        self._disk.stop()
        self._background.call(self._stop(), _START_S, "the trainer's servers to stop")
        self._background.stop()

    async def _stop(self) -> None:
        await self._http.stop()
        await self._rpc.stop()
