"""The operator's token is read from its file, or refused."""

from pathlib import Path

import pytest

from headrace.services.orchestrator.http.operator_token import read_token
from headrace.wire.errors import ConfigError

TOKEN = "a-long-enough-token"


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    assert read_token(Path()) == ""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    assert read_token(path) == TOKEN
    for text in ("", "short", "with\nlines in it of some length", "\u00fc" * 20):
        path.write_text(text)
        with pytest.raises(ConfigError, match="operator_token_file"):
            read_token(path)
    with pytest.raises(ConfigError, match="operator_token_file"):
        read_token(tmp_path / "none")
