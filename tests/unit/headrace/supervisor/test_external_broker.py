"""A broker that the config names: what is said of its URL has no password."""

import pytest

from headrace.supervisor.broker import check_external
from headrace.wire.errors import ConfigError


@pytest.mark.parametrize("url", ["http://:planted-secret@host:6379/0", "redis://:planted-secret@host:port/0"])
async def test_a_bad_url_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"--broker\.url = .*@?host") as refused:
        await check_external(url, "--broker.url", 1.0, run_id="run", fresh=True)
    assert "planted-secret" not in str(refused.value)
