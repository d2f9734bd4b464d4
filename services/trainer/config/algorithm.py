"""`[algorithm]` as a run reads it: a recipe gives the defaults, and what cannot work together is refused."""

from pydantic import model_validator

from headrace.services.trainer.algorithms.recipes import find_recipe
from headrace.services.trainer.config.checks import CHECKS
from headrace.services.trainer.config.keys import AlgorithmKeys


class AlgorithmTable(AlgorithmKeys):
    """`[algorithm]`: what is computed from a batch. `name` takes a recipe; every other key can be overridden."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: object) -> object:
        """The recipe's values, where none is given."""
        if not isinstance(values, dict):
            return values
        settings = find_recipe(str(values.get("name", "grpo"))).settings
        merged = {**settings, **values}
        if isinstance(values.get("correction"), dict) and "correction" in settings:
            merged["correction"] = {**settings["correction"], **values["correction"]}
        return merged

    @model_validator(mode="after")
    def _works(self) -> "AlgorithmTable":
        for check in CHECKS:
            reason = check(self)
            if reason is not None:
                raise ValueError(f"{self.name}: {reason}")
        return self
