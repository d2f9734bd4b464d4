"""Options of the scorers that ask an endpoint."""

from pathlib import Path
from typing import Any

from pydantic import Field

from headrace.wire.config.settings import Table


class EndpointOptions(Table):
    """What all of them share."""

    url: str
    """Base URL: for a judge as OpenAI's clients take it, e.g. `https://api.openai.com/v1`."""
    api_key_file: Path | None = None
    """A file that holds the key alone."""
    ca_file: Path | None = None
    """Certificates to trust in place of the public ones."""
    concurrency: int = Field(16, ge=1)
    """Requests in flight."""
    deadline_s: float | None = Field(None, gt=0)
    """For one request or verdict with all its tries, from its turn on; none = the rubric's `timeout_s`, which is for
    all those of a group together."""
    attempt_s: float | None = Field(None, gt=0)
    """For one try; none = half of the deadline."""
    retries: int = Field(3, ge=0)
    """Further tries of a request that was not answered."""

    @property
    def endpoint(self) -> dict[str, Any]:
        """Arguments of `Endpoint`."""
        return {name: getattr(self, name) for name in EndpointOptions.model_fields}
