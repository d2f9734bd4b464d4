"""What a command prints, and the exit status with which it ends."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from rich.console import Console

from headrace.inspect.terminal import SafeConsole

FINISHED, FAILED, BAD_INPUT, DISK_REFUSED, STOPPED = 0, 1, 2, 3, 130
"""Exit statuses of the command line."""


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a command: with `--json` text goes to stderr, so that stdout ends in one JSON object."""

    console: Console
    json: bool

    @classmethod
    def choose(cls, *, json: bool) -> "Output":
        """Writes text to stderr with `--json`, else to stdout."""
        return cls(SafeConsole(stderr=json, highlight=False, soft_wrap=True), json)

    def say(self, text: str) -> None:
        """Prints one line without markup."""
        self.console.print(text, markup=False)

    def complain(self, text: str) -> None:
        """Prints an error to stderr."""
        SafeConsole(stderr=True, highlight=False, soft_wrap=True).print(f"error: {text}", markup=False)

    def result(self, line: str) -> None:
        """Writes the machine-readable last line to stdout."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def in_json(self, value: object) -> None:
        """With `--json`, writes the value to stdout as the one JSON object of its last line."""
        if self.json:
            self.result(json.dumps(value))


class _LastingConsole(SafeConsole):
    def on_broken_pipe(self) -> None:
        """Rich would end the process, and stdout with it where stderr is the pipe."""
        raise BrokenPipeError(errno.EPIPE, "nothing reads it any more")


class LastingOutput(Output):
    """Output of a run, which goes on when the output cannot be written any more: a closed pipe, a full disk."""

    @classmethod
    def choose(cls, *, json: bool) -> "LastingOutput":
        """As the output of other commands."""
        return cls(_LastingConsole(stderr=json, highlight=False, soft_wrap=True), json)

    def say(self, text: str) -> None:
        """Prints one line, if it can."""
        with self._given_up(self.console.file):
            super().say(text)

    def result(self, line: str) -> None:
        """Writes the machine-readable last line to stdout, if it can."""
        with self._given_up(sys.stdout):
            super().result(line)

    @contextmanager
    def _given_up(self, stream: IO[str]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Else what stands in the buffer would be tried again, and fail, as the interpreter ends.
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
            with suppress(OSError, SystemExit):
                self.complain(
                    f"the output cannot be written: {error.strerror}; `headrace watch` shows the run, which goes on"
                )
