"""Runs untrusted programs in bubblewrap."""

from headrace.services.reward.sandbox.errors import SandboxError, SandboxStartError
from headrace.services.reward.sandbox.inside.confine import PATIENCE, Limits
from headrace.services.reward.sandbox.outcome import Program, SandboxBackend, SandboxOutcome
from headrace.services.reward.sandbox.pool import Sandboxes

__all__ = [
    "PATIENCE",
    "Limits",
    "Program",
    "SandboxBackend",
    "SandboxError",
    "SandboxOutcome",
    "SandboxStartError",
    "Sandboxes",
]
