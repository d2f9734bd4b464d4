"""The operators' token in a file, such as `orchestrator.operator_token_file`."""

from pathlib import Path

from headrace.wire.errors import ConfigError


def read_token(path: Path, key: str = "orchestrator.operator_token_file") -> str:
    """Reads a token of operators from its file, which `key` names; empty if none is given (`.`). Raises ConfigError."""
    if path == Path():
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {path}: {error}") from None
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{key}: {path}: a token has 16 or more ASCII letters and digits")
    return token
