"""What can go wrong with a sandbox itself; what a program does in one is no error but its outcome."""

from wire.errors import TransientError


class SandboxError(TransientError):
    """A sandbox died, or did not answer, while it ran a test: says nothing about the program."""


class StarvedError(SandboxError):
    """A test waited for a CPU for so long that nothing can be said of its program; the sandbox is well."""


class SandboxStartError(SandboxError):
    """No sandbox can be started: nothing can be run."""
