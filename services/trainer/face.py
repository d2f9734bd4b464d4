"""Health and metrics over gRPC and HTTP, of a process that does nothing else for others.

So a stage on given examples, and the first process of every machine beside that of rank 0: the same probes fit all.
"""

from services.trainer import metrics
from services.trainer.background import Background
from services.trainer.service import SERVICE_NAME, http_app
from services.trainer.settings import TrainerSettings
from services.trainer.stage_settings import StageSettings
from wire.disk import DiskWatch
from wire.http import serve_http
from wire.rpc import serve as serve_rpc

_START_S = 30.0


class Face:
    """Serves on a thread of its own."""

    def __init__(self, settings: TrainerSettings | StageSettings, doing: str = "loading the model") -> None:
        self._settings = settings
        self._background = Background()
        self._disk = DiskWatch(settings.run_dir, metrics.RUN_DIR_FREE.set, metrics.RUN_DIR_SIZE.set)
        self.doing = doing
        """Why the process is not ready, in words; empty = ready."""

    def start(self) -> None:
        """Begins to serve; raises ConfigError if a port is taken."""
        self._background.start()
        self._disk.start()
        self._background.call(self._serve(), _START_S, "the trainer's servers")

    async def _serve(self) -> None:
        settings = self._settings
        # The name is served, for its health; none of its calls is.
        names = {SERVICE_NAME: lambda _server: None}
        self._rpc = await serve_rpc(names, settings.host, settings.grpc_port, ready=self._ready)
        self._http = await serve_http(http_app(self._ready), settings.host, settings.http_port)

    def _ready(self) -> str | None:
        return self.doing or None

    def stop(self) -> None:
        """Ends servers and threads."""
        self._disk.stop()
        self._background.call(self._stop(), _START_S, "the trainer's servers to stop")
        self._background.stop()

    async def _stop(self) -> None:
        await self._http.stop()
        await self._rpc.stop()
