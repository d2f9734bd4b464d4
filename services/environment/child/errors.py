"""How an episode's child fails its worker."""

from headrace.wire.errors import HeadraceError


class EnvironmentFailedError(HeadraceError):
    """The environment raised an error, returned what has not the form, or its process ended or lied."""

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(f"{text} ({where})" if where else text)
        self.text, self.where = text, where


class ChildDiedError(EnvironmentFailedError):
    """The environment's process ended by itself, or was killed."""


class ChildLateError(HeadraceError):
    """A call of the environment passed its deadline; its process has been killed."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than environment.tool_s = {seconds:g} s; its process was killed")
