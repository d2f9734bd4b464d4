"""What `headrace prepare` cannot make a run directory for, since only `headrace train` starts it."""

import pytest

from headrace.config.schema import RunFile
from headrace.run.prepare import check_here
from headrace.wire.errors import ConfigError


def test_episodes_are_refused_where_no_service_would_play_them() -> None:
    data = {"data": {"path": "rows.jsonl"}}
    check_here(RunFile.model_validate(data))
    with pytest.raises(ConfigError, match="Compose and Kubernetes have no such service yet"):
        check_here(RunFile.model_validate({**data, "environment": {"name": "game:Sums"}}))
