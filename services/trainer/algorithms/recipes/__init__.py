"""The algorithms as data: one small file each, found by its being here. Imports no torch.

A new algorithm is a new file with a `RECIPE`; its name is the file's. `headrace algorithms` lists all.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe
from headrace.wire.config.nearest import unknown

_NOT_RECIPES = ("recipe", "corrections")


@cache
def recipes() -> Mapping[str, AlgorithmRecipe]:
    """All recipes by name, in alphabetical order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _NOT_RECIPES)
    found: dict[str, AlgorithmRecipe] = {}
    for name in names:
        recipe = importlib.import_module(f"{__name__}.{name}").RECIPE
        assert isinstance(recipe, AlgorithmRecipe)
        found[name] = recipe
    return MappingProxyType(found)


def find_recipe(name: str) -> AlgorithmRecipe:
    """The recipe `name`; raises ValueError naming all there are."""
    if name not in recipes():
        raise ValueError(f"algorithm {unknown(name, recipes())}")
    return recipes()[name]
