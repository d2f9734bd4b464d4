"""The operator's token, which `orchestrator.operator_token_file` names."""

from pathlib import Path

from headrace.wire.errors import ConfigError


def read_token(path: Path) -> str:
    """Reads the operator's token from its file; empty if none is configured (`.`). Raises ConfigError."""
    if path == Path():
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"orchestrator.operator_token_file: {path}: {error}") from None
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise ConfigError(f"orchestrator.operator_token_file: {path}: a token has 16 or more ASCII letters and digits")
    return token
