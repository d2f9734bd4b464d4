"""Health and metrics over HTTP while a stage on given examples runs."""

from services.trainer.background import Background
from services.trainer.service import http_app
from services.trainer.stage_settings import StageSettings
from wire.http import HttpServer, serve_http

_START_S = 30.0


class Face:
    """Serves on a thread of its own."""

    def __init__(self, settings: StageSettings) -> None:
        self._settings = settings
        self._background = Background()
        self._server: HttpServer | None = None
        self.doing = "loading the model"
        """Why the process is not ready, in words; empty = ready."""

    def start(self) -> None:
        """Begins to serve; raises ConfigError if the port is taken."""
        self._background.start()
        app = http_app(lambda: self.doing or None)
        host, port = self._settings.host, self._settings.http_port
        self._server = self._background.call(serve_http(app, host, port), _START_S, "the trainer's HTTP server")

    def stop(self) -> None:
        """Ends server and thread."""
        if self._server:
            self._background.call(self._server.stop(), _START_S, "the trainer's HTTP server to stop")
        self._background.stop()
