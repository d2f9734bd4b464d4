"""Applies all rules to one run directory."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from headrace.config.run_dir import STALE_BEFORE
from headrace.inspect.history import rules
from headrace.inspect.history.record import RunHistory, read_history
from headrace.inspect.history.rollouts import look_at_rollouts
from headrace.inspect.history.verdict import Bound, Groups, HistoryVerdict
from headrace.inspect.history.weights import final_weights, weights_sha256
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.layout import RunPaths


def check_run(run_dir: Path) -> HistoryVerdict:
    """Checks a run directory, live or ended. Raises ConfigError if it is not one."""
    bound = _bound(run_dir)
    history = read_history(run_dir)
    problems = [
        *history.damage,
        *rules.steps_are_whole(history),
        *rules.events_agree(history),
        *rules.groups_have_one_end(history),
        *rules.nothing_is_forgotten(history),
        *rules.order_is_strict(history, bound),
    ]
    unproven = look_at_rollouts(history, bound, problems)
    return HistoryVerdict(
        steps=len(set(history.done)),
        groups=_count(history),
        weights_sha256=_weights(run_dir, history, problems),
        unproven_steps=unproven,
        problems=tuple(problems),
    )


def _bound(run_dir: Path) -> Bound:
    file = RunPaths(run_dir).run_toml
    try:
        tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        run = tables["run"]
        return Bound(versions=int(run["max_staleness"]), policy=str(run.get("stale", STALE_BEFORE)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{run_dir} is not a run directory: {file}: {error}") from None


def _count(history: RunHistory) -> Groups:
    trained = rules.trained_groups(history)
    dropped = {drop.group_id: drop.reason for drop in history.drops if drop.group_id not in trained}
    for group in history.ended_open - trained:
        dropped.setdefault(group, rules.RUN_ENDED)
    issued = {*history.issued.values()}
    return Groups(
        issued=len(issued),
        trained=len(trained),
        dropped=dict(sorted(Counter(dropped.values()).items())),
        open=len(issued - trained - dropped.keys()),
    )


def _weights(run_dir: Path, history: RunHistory, problems: list[str]) -> str | None:
    files = final_weights(run_dir)
    if not files:
        return None
    try:
        digest = weights_sha256(files)
    except DataError as error:
        problems.append(str(error))
        return None
    if history.exported and files[0].parent.name == "export" and digest != history.exported:
        problems.append(f"the exported weights are not those that the trainer exported ({history.exported[:12]})")
    return digest
