"""Runs programs that nobody trusts, in bubblewrap."""

from services.reward.sandbox.errors import SandboxError, SandboxStartError
from services.reward.sandbox.inside.confine import PATIENCE, Limits
from services.reward.sandbox.outcome import Backend, Outcome, Program
from services.reward.sandbox.pool import Sandboxes

__all__ = ["PATIENCE", "Backend", "Limits", "Outcome", "Program", "SandboxError", "SandboxStartError", "Sandboxes"]
