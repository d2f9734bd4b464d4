"""All declared parts by name, the keys of their options as one class, and how an algorithm is put together."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from headrace.services.trainer.algorithms import parts
from headrace.services.trainer.algorithms.parts.part import ADVANTAGES, POLICY_LOSSES, Part, PartOptions

if TYPE_CHECKING:
    from headrace.services.trainer.algorithms.algorithm import Algorithm, Estimate, Signals
    from headrace.services.trainer.algorithms.composition import Composition

for _module in sorted(module.name for module in pkgutil.iter_modules(parts.__path__)):
    importlib.import_module(f"{parts.__name__}.{_module}")

PartT = TypeVar("PartT", bound=Part)


def find_part(declared: dict[str, PartT], key: str, name: str) -> PartT:
    """The part `name`; raises ValueError naming all there are. `key`: the key of `[algorithm]` that names it."""
    if name not in declared:
        raise ValueError(f"{key} {name!r} is not one of {', '.join(declared)}")
    return declared[name]


def option_classes(common: type[PartOptions] | None = None) -> tuple[type[PartOptions], ...]:
    """The options of all parts without those that others inherit from, each once.

    Raises TypeError where two classes, or `common`, give one key two meanings.
    """
    every = list(dict.fromkeys(part.options for part in declared_parts()))
    for key, owners in _owners([*every, *([common] if common else [])]).items():
        if len(owners) > 1:
            raise TypeError(f"the key {key!r} has two meanings: in {' and '.join(one.__name__ for one in owners)}")
    return tuple(one for one in every if not any(one is not other and issubclass(other, one) for other in every))


def declared_parts() -> Iterator[Part]:
    """All parts of all kinds."""
    yield from ADVANTAGES.values()
    yield from POLICY_LOSSES.values()


def build_algorithm(table: Composition) -> Algorithm:
    """The algorithm of a resolved `[algorithm]` table; raises ConfigError for a function that cannot be imported."""
    from headrace.services.trainer.algorithms.advantages.estimates import whitened
    from headrace.services.trainer.algorithms.algorithm import Algorithm

    estimator, policy_loss = table.estimator.bind(table), table.loss.bind(table)

    def estimate(signals: Signals) -> Estimate:
        return whitened(estimator(signals), signals)

    return Algorithm(estimate=estimate if table.whiten else estimator, policy_loss=policy_loss)


def _owners(classes: list[type[PartOptions]]) -> dict[str, set[type]]:
    """The classes that define each key, inherited definitions counted once."""
    found: dict[str, set[type]] = {}
    for one in {base for each in classes for base in each.__mro__}:
        for key in inspect.get_annotations(one):
            if key != "model_config" and issubclass(one, PartOptions):
                found.setdefault(key, set()).add(one)
    return found
