"""Checks `[environment]` against the tables that it meets. Each check returns the problem and its fix, or None."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.services.reward.settings import ScorerTable

if TYPE_CHECKING:
    from headrace.config.schema import RunFile


def environment_problem(config: "RunFile") -> str | None:
    """Why episodes cannot be played in this run, with the way out."""
    table = config.environment
    of_tasks = [scorer for task in config.reward.tasks.values() for scorer in task.scorers]
    scorers = [*config.reward.scorers, *of_tasks]
    if not table.on:
        if any(one.name == "environment" for one in _leaves(scorers)):
            return "the scorer 'environment' needs an environment to read its reward from: set environment.name"
        return None
    if config.data.environment and table.taskset != config.data.environment:
        return (
            f'data.environment = "{config.data.environment}", but environment.name = "{table.name}" is what is played: '
            "leave one of them out"
        )
    if config.run.stage != "rl":
        return f"[environment] is for run.stage = 'rl', not {config.run.stage!r}"
    if table.episode_s >= config.trainer.batch_timeout_s:
        return (
            f"environment.episode_s = {table.episode_s:g} must be below trainer.batch_timeout_s = "
            f"{config.trainer.batch_timeout_s:g}: the trainer would give up on an episode that is within its time"
        )
    if config.discriminator.every:
        return (
            "[discriminator] learns from completions of one prompt, not from episodes: leave it out with [environment]"
        )
    if config.rollout.sampling.forced_lengths_column:
        return "rollout.sampling.forced_lengths_column is for completions, not for episodes: leave it out"
    if table.slots < config.batch.group_size:
        return (
            f"environment.slots = {table.slots} must be at least batch.group_size = {config.batch.group_size}: all "
            "episodes of a group are played at a time"
        )
    return None


def _leaves(scorers: Iterable[ScorerTable]) -> list[ScorerTable]:
    return [leaf for one in scorers for leaf in (_leaves(one.members) if one.members else [one])]
