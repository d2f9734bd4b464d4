"""What `[reward]` and the tables that rely on it must agree on: each check gives the reason and way out, or None."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from services.reward.settings import ScorerTable

if TYPE_CHECKING:
    from headrace.config.schema import RunFile

_DISCRIMINATOR = "discriminator"


def reward_problem(config: "RunFile") -> str | None:
    """Of the RL stage; the others score nothing."""
    if config.run.stage != "rl":
        return None
    return _discriminator(config) or _component(config)


def _discriminator(config: "RunFile") -> str | None:
    every = config.discriminator.every
    scorers = list(_leaves(_all_scorers(config)))
    of_run = [one for one in scorers if one.name == _DISCRIMINATOR and "path" not in one.options]
    if every and not of_run:
        return (
            f"[discriminator] every = {every} trains a discriminator that nobody asks: add [[reward.scorers]] name = "
            "'discriminator', or set discriminator.every = 0"
        )
    if of_run and not every:
        return (
            "the scorer 'discriminator' needs one that is trained: set discriminator.every to 1 or more (steps between "
            "two updates), or options.path to the folder `discriminator` of another run"
        )
    begins_flat = bool(of_run) and len(of_run) == len(scorers) and not config.discriminator.path.parts
    if begins_flat and config.algorithm.dynamic_sampling:
        return (
            "algorithm.dynamic_sampling would drop every group: a discriminator that begins with a language model "
            "gives all rollouts one score until its first update; set it to false, or add another scorer"
        )
    return None


def _component(config: "RunFile") -> str | None:
    """An absent component counts as an abstention, so that a wrong name would leave an evaluation without a result."""
    wanted = config.eval.component
    names = list(dict.fromkeys(scorer.component for scorer in _all_scorers(config)))
    if not wanted or any(wanted == name or wanted.startswith(f"{name}.") for name in names):
        return None
    return f"eval.component = {wanted!r} is none of the scorers: {', '.join(names)}"


def _all_scorers(config: "RunFile") -> Sequence[ScorerTable]:
    of_tasks = [scorer for task in config.reward.tasks.values() for scorer in task.scorers]
    return [*config.reward.scorers, *of_tasks]


def _leaves(scorers: Sequence[ScorerTable]) -> Iterator[ScorerTable]:
    for scorer in scorers:
        yield from _leaves(scorer.members) if scorer.members else (scorer,)
