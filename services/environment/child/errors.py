"""How an episode's child fails its worker, and how the user's code says that what it depends on is away."""

from headrace.wire.errors import HeadraceError


class ToolLostError(Exception):
    """Raised by a tool or an environment whose own server is away: the episode abstains as `tool_lost`.

    Any other error of a tool is text that the policy reads and learns from.
    """


class ResultError(Exception):
    """The environment returned what has not the form; the text names the method and what was wrong."""


class EnvironmentFailedError(HeadraceError):
    """The environment raised an error, returned what has not the form, or its process ended or lied."""

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(f"{text} ({where})" if where else text)
        self.text, self.where = text, where


class ChildDiedError(EnvironmentFailedError):
    """The environment's process ended by itself, or was killed."""


class ToolServerLostError(EnvironmentFailedError):
    """The user's code raised ToolLostError."""


class ChildLateError(HeadraceError):
    """A call of the environment passed its deadline; its process has been killed."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than environment.tool_s = {seconds:g} s; its process was killed")
