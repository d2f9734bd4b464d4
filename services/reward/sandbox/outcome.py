"""What is run, and how it went."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Ending = Literal["exit", "signal", "time"]
"""It left by itself; it was killed or crashed; its time was over."""


@dataclass(frozen=True, slots=True)
class Program:
    """Python source, and how it is called."""

    source: str
    function: str | None = None
    """None: a test's input is its standard input, the output its standard output. Else the function (or method of class
    `Solution`) that is called; input is the encoded arguments, output the encoded value it returned."""
    prelude: bool = True
    """The names of `inside.prelude` are there without import; only where a function is called."""


@dataclass(frozen=True, slots=True)
class SandboxOutcome:
    """How one test of a program went. Everything in it but ending, code and seconds was written by the program."""

    ending: Ending
    code: int
    """Exit status, or the signal's number."""
    output: bytes
    """At most `Limits.output_bytes`."""
    notes: str
    """The end of its standard error."""
    wall_s: float
    cpu_s: float
    waited_s: float = 0.0
    """Time spent waiting for a CPU, as far as the kernel reports it."""

    @property
    def spent_s(self) -> float:
        """What it is charged for."""
        return self.wall_s - self.waited_s

    @property
    def is_clean(self) -> bool:
        """Whether it exited by itself, with status 0."""
        return self.ending == "exit" and self.code == 0


class SandboxBackend(Protocol):
    """Something that runs programs in isolation."""

    async def start(self) -> None:
        """Raises ConfigError, with the way out, if it cannot isolate."""
        ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        go_on: Callable[[SandboxOutcome], bool],
        begin: Callable[[], None],
    ) -> None:
        """Runs the tests in order, each in a fresh world, until `go_on` returns False for an outcome.

        `begin` is called when the program's turn has come. Both may be called on another thread. Raises SandboxError,
        or SandboxStartError if no program at all can be run.
        """
        ...

    async def close(self) -> None:
        """Ends all its processes and connections."""
        ...
