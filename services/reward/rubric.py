"""Named scorers and their weights make one score a rollout: the weighted sum. Pure, given the scorers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.reward.scorers import GroupScorer, load_group_scorer
from services.reward.settings import ScorerTable
from wire.contracts import RolloutGroup, Score
from wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str
    weight: float
    scorer: GroupScorer

    @property
    def exclusive(self) -> bool:
        return getattr(self.scorer, "exclusive", False)


class Rubric:
    """Scores whole groups; a scorer's failure is an error of the group, never a zero."""

    def __init__(self, tables: Sequence[ScorerTable]) -> None:
        if not tables:
            raise ConfigError("at least one scorer is needed, e.g. [[reward.scorers]] name = 'numeric'")
        names = [table.component for table in tables]
        if len(set(names)) < len(names):
            raise ConfigError(f"two scorers have one name: {', '.join(names)}; give them a label each")
        self._parts = [
            _Part(name=table.component, weight=table.weight, scorer=load_group_scorer(table.name, table.options))
            for table in tables
        ]
        text = json.dumps([table.model_dump(mode="json") for table in tables], sort_keys=True)
        self.version = hashlib.sha256(text.encode()).hexdigest()[:12]
        """Changes with the config of the scorers; every scored group carries it."""

    @property
    def names(self) -> list[str]:
        """The scorers, in the order of the config."""
        return [part.name for part in self._parts]

    def load(self) -> None:
        """Loads what scorers need before they can serve. Raises ConfigError."""
        for part in self._parts:
            load = getattr(part.scorer, "load", None)
            if load is not None:
                load()

    def score(self, group: RolloutGroup) -> tuple[Score, ...]:
        """One score a rollout, in order. Raises whatever a scorer raises."""
        return self.combine(group, self.values(group, exclusive=False) | self.values(group, exclusive=True))

    def scorers(self, *, exclusive: bool) -> list[str]:
        """Names of those that take one group at a time, or of the others."""
        return [part.name for part in self._parts if part.exclusive == exclusive]

    def values(self, group: RolloutGroup, *, exclusive: bool) -> dict[str, Sequence[float]]:
        """What each of `scorers(exclusive=exclusive)` says of the rollouts, in order. Raises whatever one raises."""
        return {part.name: part.scorer(group) for part in self._parts if part.exclusive == exclusive}

    def combine(self, group: RolloutGroup, found: Mapping[str, Sequence[float]]) -> tuple[Score, ...]:
        """One score a rollout from what all scorers said of it."""
        scores = []
        for number, rollout in enumerate(group.rollouts):
            components = {name: float(found[name][number]) for name in self.names}
            value = sum(part.weight * components[part.name] for part in self._parts)
            scores.append(Score(rollout_id=rollout.rollout_id, value=value, components=components))
        return tuple(scores)
