"""A token is read from the file that a user names, or refused."""

from pathlib import Path

import pytest

from headrace.wire.access.tokens import read_token
from headrace.wire.errors import ConfigError

TOKEN = "a-long-enough-token"


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    assert read_token(Path(), "key") == ""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    assert read_token(path, "key") == TOKEN
    for text in ("", "short", "two words of a length", "with\nlines in it of some length", "\u00fc" * 20):
        path.write_text(text)
        with pytest.raises(ConfigError, match="key "):
            read_token(path, "key")
    with pytest.raises(ConfigError, match="key "):
        read_token(tmp_path / "none", "key")
