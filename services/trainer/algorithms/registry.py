"""The algorithms by name: data, so that a setting can choose one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.trainer.algorithms.algorithm import Algorithm
from services.trainer.algorithms.grpo import grpo


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an algorithm is built, and the hyper-parameters it takes."""

    build: Callable[..., Algorithm]
    takes: tuple[str, ...]


ALGORITHMS: Mapping[str, Recipe] = MappingProxyType(
    {"grpo": Recipe(grpo, ("clip_low", "clip_high", "normalize_std", "std_eps"))}
)


def build_algorithm(name: str, values: Mapping[str, object]) -> Algorithm:
    """The algorithm `name`, with the hyper-parameters it takes out of `values`; raises ValueError if there is none."""
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm {name!r} is not one of {', '.join(ALGORITHMS)}")
    recipe = ALGORITHMS[name]
    return recipe.build(**{key: values[key] for key in recipe.takes})
