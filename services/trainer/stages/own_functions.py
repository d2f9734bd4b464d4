"""The user's own functions in a trainer process: made importable, and checked before a model is loaded."""

import importlib.util
import sys
from pathlib import Path

from headrace.services.trainer.algorithms.algorithm import Algorithm
from headrace.services.trainer.algorithms.composition import build_algorithm
from headrace.services.trainer.algorithms.own_check import BatchShape, check_estimator, check_loss
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.own_code import algorithm_code, checked_digest


def load_algorithm(settings: TrainerSettings, *, code: Path | None = None) -> Algorithm:
    """Builds the algorithm; functions of the user's own come from the run's copy and are checked.

    `code`: a copy that is not yet the run's. Raises ConfigError for a function that cannot be trained with.
    """
    table = settings.algorithm
    if not table.own_functions:
        return build_algorithm(table)
    if table.path is not None:
        own = algorithm_code(settings.code_dir)
        folder = code or own.folder
        if code is None:
            checked_digest(own)
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        for target in table.own_functions:
            _check_origin(target, folder)
    algorithm = build_algorithm(table)
    shape = BatchShape(groups=settings.batch.groups, group_size=settings.batch.group_size, longest=settings.max_tokens)
    _check(table, algorithm, shape)
    return algorithm


def code_digest(settings: TrainerSettings) -> str:
    """Digest of the run's copy of `algorithm.path`; empty without one."""
    return checked_digest(algorithm_code(settings.code_dir)) if settings.algorithm.path is not None else ""


def _check(table: AlgorithmTable, algorithm: Algorithm, shape: BatchShape) -> None:
    own = table.own_functions
    if table.advantage in own:
        check_estimator(
            table.advantage, algorithm.estimate, table.estimator.needs, shape, penalties=table.kl_in == "reward"
        )
    if table.policy_loss in own:
        check_loss(table.policy_loss, algorithm.policy_loss, shape)


def _check_origin(target: str, folder: Path) -> None:
    """Refuses a module that stands in the folder but was found in front of it: the copy would not be what trains."""
    top = target.partition(":")[0].partition(".")[0]
    if not (folder / f"{top}.py").is_file() and not (folder / top).is_dir():
        return
    found = importlib.util.find_spec(top)
    places = [found.origin, *(found.submodule_search_locations or ())] if found is not None else []
    if not any(place and Path(place).resolve().is_relative_to(folder.resolve()) for place in places):
        raise ConfigError(
            f"{target}: algorithm.path has a module {top}, but another of that name comes before it on the import path "
            f"({places[0] if places else 'built in'}): rename yours"
        )
