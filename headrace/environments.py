"""What the code of an environment may import of Headrace; it needs none of it to run."""

from headrace.services.environment.child.errors import ToolLostError

__all__ = ["ToolLostError"]
