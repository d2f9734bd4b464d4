"""A child without its process: for claims about the user's environment, not about what isolates it."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.environment import HostedEnvironment
from headrace.services.environment.child.loading import LoadError
from headrace.services.environment.child.main import _answered, _loaded
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError


class HostedChild(ChildProcess):
    """Loads and answers in this process as the child's own `main` does."""

    def __init__(self, config: ChildConfig) -> None:
        super().__init__(config)
        self._hosted: HostedEnvironment | None = None

    @property
    def alive(self) -> bool:
        return self._hosted is not None

    async def start(self) -> None:
        config = self._config
        names = {"environment": config.environment, "tool": config.tools, "reward": config.rewards}
        try:
            self._hosted = _loaded(
                argparse.Namespace(**names, path=config.path, max_result_chars=config.max_result_chars)
            )
        except LoadError as error:
            raise ConfigError(str(error)) from error
        self.tools = self._hosted.schemas

    async def ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        if self._hosted is None:
            raise ConnectionError("it has ended")
        answer: dict[str, Any] = json.loads(json.dumps(await _answered(self._hosted, dict(message), 0.0)))
        return answer

    async def kill(self, grace_s: float = 0.0) -> int | None:
        self._hosted = None
        return None
