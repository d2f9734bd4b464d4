"""What can go wrong with a sandbox itself; what a program does in one is its outcome and not an error."""

from headrace.wire.errors import TransientError


class SandboxError(TransientError):
    """A sandbox died, or did not answer, while it ran a test: no evidence about the program."""


class StarvedError(SandboxError):
    """A test waited for a CPU for so long that its program cannot be judged; the sandbox is well."""


class SandboxStartError(SandboxError):
    """No sandbox can be started: nothing can be run."""
