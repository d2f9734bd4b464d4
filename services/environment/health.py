"""When an environment is broken rather than its episodes: the run then ends with the reason. Pure: times are given."""

from headrace.wire.contracts import FinishReason, RolloutGroup
from headrace.wire.errors import HeadraceError
from headrace.wire.process.users_code import FIRST_GROUPS, FirstFailures

_FAILURES = (FinishReason.ENVIRONMENT_ERROR, FinishReason.TOOL_LOST)


class EnvironmentOutageError(HeadraceError):
    """The environment fails every episode: the run cannot go on."""

    final = True


class EnvironmentHealth:
    """Follows the groups that were played. Times are monotonic seconds."""

    def __init__(self, outage_s: float) -> None:
        self._outage_s = outage_s
        self._first = FirstFailures()
        self._groups = 0
        self._errors: list[str] = []
        """Errors of the groups that failed whole since the last that did not."""
        self._since = 0.0

    def take(self, group: RolloutGroup, now: float) -> None:
        """Takes a group into account. Raises EnvironmentOutageError."""
        errors = [one.episode.error for one in group.rollouts if one.finish_reason in _FAILURES and one.episode]
        if len(errors) < len(group.rollouts):
            self._first.worked()
            self._errors = []
            return
        self._since = self._since if self._errors else now
        self._errors.append(errors[0])
        self._groups += 1
        if self._first.failed(str(self._groups), errors[0]):  # Each group is played once.
            raise EnvironmentOutageError(f"the first {FIRST_GROUPS} groups failed in the environment: {errors[0]}")
        if now - self._since >= self._outage_s:
            raise EnvironmentOutageError(
                f"every episode of the last {now - self._since:.0f} s failed in the environment "
                f"(environment.outage_s = {self._outage_s:g}): {errors[0]}"
            )
