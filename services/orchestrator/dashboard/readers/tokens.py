"""Decodes single tokens to text with the policy's tokenizer, if there is one."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

if TYPE_CHECKING:
    from tokenizers import Tokenizer

log = get_logger("dashboard")


class Decoder:
    """Lazily loads the first `tokenizer.json` found in `folders`. Blocking, thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._tokenizer: "Tokenizer | None" = None
        self._tried = False

    def texts(self, ids: Sequence[int]) -> list[str] | None:
        """One text per token, which join to the whole text (a multi-token character is at its last token); or None."""
        tokenizer = self._loaded()
        if tokenizer is None:
            return None
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        try:
            return [stream.step(tokenizer, token) or "" for token in ids]
        except Exception as error:  # The library raises bare Exceptions for undecodable tokens.
            log.warning("tokens_without_text", error=str(error))
            return None

    def _loaded(self) -> "Tokenizer | None":
        with self._lock:
            if not self._tried:
                self._tried = True
                self._tokenizer = self._load()
            return self._tokenizer

    def _load(self) -> "Tokenizer | None":
        try:
            from tokenizers import Tokenizer
        except ImportError:
            log.warning("tokens_without_text", error="no library `tokenizers`: install headrace[orchestrator]")
            return None
        for folder in self._folders:
            path = folder / RunPaths.tokenizer.name
            if path.is_file():
                try:
                    return Tokenizer.from_file(str(path))
                except Exception as error:  # The library raises bare Exceptions.
                    log.warning("tokenizer_unreadable", path=str(path), error=str(error))
        return None
