"""Checks `[reward]` against the tables that depend on it. Each check returns the problem and its fix, or None."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.config.tables import RunTables
from headrace.services.orchestrator.settings import EvalTable
from headrace.services.reward.settings import ScorerTable
from headrace.services.trainer.config.discriminator import reference_texts
from headrace.wire.config.nearest import unknown

_DISCRIMINATOR = "discriminator"
_TEACHER = "teacher"
_MODELS = (_DISCRIMINATOR, "reward_model", _TEACHER)
"""Scorers that read the policy's tokens with a model of their own, unless an endpoint has it."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRow:
    """A prepared prompt."""

    name: str
    """For people: its file and sample id."""
    columns: Mapping[str, object]
    tokens: int
    is_trained: bool
    """False: held out."""
    set: str = ""
    """The evaluation set of a row that is held out."""


def reward_problem(config: RunTables) -> str | None:
    """Checks the RL stage only: the other stages score nothing."""
    if config.run.stage != "rl":
        return None
    kinds = {one.combination for one in (config.reward, *config.reward.tasks.values())} - {"weighted_sum", "mean"}
    if config.algorithm.advantage == "gdpo" and kinds:
        return (
            f"advantage = 'gdpo' sums components by their weights, which combination = {min(kinds)!r} does not: set "
            "combination = 'weighted_sum', or advantage = 'group'"
        )
    return _discriminator(config) or _teachers(config)


def has_models(config: RunTables) -> bool:
    """Whether any scorer is a model, so that `rows_problem` must be checked."""
    return any(_has_model(leaf) for leaf in all_leaves(config))


def teachers(config: RunTables) -> dict[str, Path]:
    """Component -> folder of the teachers that run in the reward service."""
    found = [leaf for leaf in all_leaves(config) if leaf.name == _TEACHER and _has_model(leaf)]
    return {leaf.component: _folder(config, leaf) for leaf in found}


def rows_problem(
    config: RunTables, rows: Iterable[PreparedRow], context_of: Callable[[Path], int | None]
) -> str | None:
    """Rows whose rollouts a scoring model could not read to the end, or from which a discriminator cannot learn.

    A rollout that is too long for a model goes unscored: a policy could so choose not to be judged. `context_of` gives
    the longest sequence of a model folder, None where there is no bound.
    """
    longest: dict[Path, tuple[PreparedRow, str]] = {}
    without: dict[str, None] = {}
    for row in rows:
        for leaf in _leaves(_scorers_of(config, row)):
            if not _has_model(leaf):
                continue
            folder = _folder(config, leaf)
            if folder not in longest or row.tokens > longest[folder][0].tokens:
                longest[folder] = row, leaf.component
            if row.is_trained and _is_of_run(leaf) and not reference_texts(row.columns, config.discriminator.reference):
                without[row.name] = None
    for folder, (row, component) in longest.items():
        wrong = _too_long(config, row, component, context_of(folder))
        if wrong:
            return wrong
    return _without_references(config, list(without))


def _too_long(config: RunTables, row: PreparedRow, component: str, context: int | None) -> str | None:
    table = _eval_of(config, row)
    completion = (table.max_tokens if table else 0) or config.rollout.sampling.max_tokens
    if context is None or row.tokens + completion <= context:
        return None
    return (
        f"the model of the scorer {component!r} reads at most {context} tokens; {row.name} has {row.tokens}, and its "
        f"rollouts have up to {completion}: a policy could escape the model's judgement by writing long; set a lower "
        "rollout.sampling.max_tokens, leave long prompts out (data.max_prompt_tokens with data.overlong = 'drop'), or "
        "take a model with a longer context"
    )


def _without_references(config: RunTables, names: Sequence[str]) -> str | None:
    if not names:
        return None
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"discriminator.reference = {config.discriminator.reference!r}: no text in this column for "
        f"{', '.join(names[:_SHOWN])}{more}, which the scorer 'discriminator' is to score: name another column, give "
        "these rows one, or make them a task of their own with other scorers ([reward.tasks])"
    )


def _scorers_of(config: RunTables, row: PreparedRow) -> Sequence[ScorerTable]:
    table = _eval_of(config, row)
    name = (table.task if table else "") or str(row.columns.get(config.reward.task_column, ""))
    task = config.reward.tasks.get(name)
    return config.reward.scorers if task is None else task.scorers


def _eval_of(config: RunTables, row: PreparedRow) -> EvalTable | None:
    return None if row.is_trained else next((one for one in config.eval if one.name == row.set), None)


def _folder(config: RunTables, leaf: ScorerTable) -> Path:
    """Where its model is, or the one that it begins with."""
    if not _is_of_run(leaf):
        return Path(str(leaf.options.get("path", "")))
    return config.discriminator.path if config.discriminator.path.parts else config.model.path


def _has_model(leaf: ScorerTable) -> bool:
    return leaf.name in _MODELS and "url" not in leaf.options


def _teachers(config: RunTables) -> str | None:
    sets = [(f"eval.{one.name}{one.name and '.'}temperature", one.temperature) for one in config.eval if not one.greedy]
    for leaf in all_leaves(config):
        if leaf.name == _TEACHER and "template" in leaf.options and config.environment.on:
            return (
                f"the scorer {leaf.component!r}: options.template is for prompts, and the messages of an episode are "
                "its environment's: leave it out"
            )
        for place, temperature in [("rollout.sampling.temperature", config.rollout.sampling.temperature), *sets]:
            if leaf.name == _TEACHER and "url" in leaf.options and temperature != 1:
                return (
                    f"{place} = {temperature:g}: the endpoint of the scorer {leaf.component!r} has logprobs of "
                    "temperature 1 alone, so that their difference to the policy's would not be a KL; set it to 1, or "
                    "let the reward service run the teacher (options.path)"
                )
    return None


def _is_of_run(leaf: ScorerTable) -> bool:
    return leaf.name == _DISCRIMINATOR and "path" not in leaf.options


def _discriminator(config: RunTables) -> str | None:
    every = config.discriminator.every
    scorers = list(all_leaves(config))
    of_run = [one for one in scorers if _is_of_run(one)]
    if every and not of_run:
        return (
            f"[discriminator] every = {every} trains a discriminator that no scorer uses: add [[reward.scorers]] "
            "name = 'discriminator', or set discriminator.every = 0"
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


def eval_problem(config: RunTables) -> str | None:
    """Why the evaluation sets do not fit the other tables.

    An absent component counts as an abstention, so that a wrong name would leave an evaluation without a result.
    """
    if config.run.stage != "rl":
        named = any(one.name or one.has_own_rows for one in config.eval)
        return "[[eval]] is for run.stage = 'rl': other stages evaluate what [data] holds out" if named else None
    tasks = config.reward.tasks
    for one in config.eval:
        if one.task and one.task not in tasks:
            return f"eval.task {unknown(one.task, tasks, '[reward.tasks]: ')}"
        if one.columns is not None and not one.has_own_rows:
            return "eval.columns is for a set with prompts of its own: give path or split, or set data.columns"
        scorers = tasks[one.task].scorers if one.task else _all_scorers(config)
        names = list(dict.fromkeys(scorer.component for scorer in scorers))
        wanted = one.component
        if wanted and not any(wanted == name or wanted.startswith(f"{name}.") for name in names):
            return f"eval.component {unknown(wanted, names, 'the scorers: ')}"
    return None


def _all_scorers(config: RunTables) -> Sequence[ScorerTable]:
    of_tasks = [scorer for task in config.reward.tasks.values() for scorer in task.scorers]
    return [*config.reward.scorers, *of_tasks]


def all_leaves(config: RunTables) -> Iterator[ScorerTable]:
    """The scorers that score by themselves, not by members; also those of tasks."""
    return _leaves(_all_scorers(config))


def _leaves(scorers: Sequence[ScorerTable]) -> Iterator[ScorerTable]:
    for scorer in scorers:
        yield from _leaves(scorer.members) if scorer.members else (scorer,)
