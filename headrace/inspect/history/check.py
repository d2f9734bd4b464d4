"""Applies all rules to one run directory."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headrace.config.resolve import STALE_BEFORE
from headrace.inspect.history import chain, rules
from headrace.inspect.history.fork import fork_holds
from headrace.inspect.history.found import FoundExport, FoundFiles, read_found
from headrace.inspect.history.receipts import chain_holds, judge_receipt, read_chain
from headrace.inspect.history.record import RunHistory, read_history
from headrace.inspect.history.rollouts import look_at_rollouts
from headrace.inspect.history.verdict import Bound, Groups, HistoryVerdict
from headrace.inspect.history.weights import weights_sha256
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.layout import RunPaths

RL = "rl"
_LOOKS = 5


def check_run(run_dir: Path, receipt: str = "") -> HistoryVerdict:
    """Checks a run directory, live or ended, and with `receipt` (hex) that nothing it stands for has changed.

    A run that goes on while it is read has written to some files before they are read and to others after it. It is
    looked at again, and a problem is what every look has found.

    Raises ConfigError if it is not a run directory, or is a replay's, which has no history of its own.
    """
    sizes, looks, found = _sizes(run_dir), 1, set[str]()
    verdict = _look(run_dir, receipt)
    while verdict.problems and looks < _LOOKS and (now := _sizes(run_dir)) != sizes:
        before, sizes, looks = verdict.problems, now, looks + 1
        verdict = _look(run_dir, receipt)
        found |= {*before, *verdict.problems}
        verdict = replace(verdict, problems=tuple(one for one in verdict.problems if one in before))
    if looks > 1:
        gone = len(found - {*verdict.problems})
        said = f"the run went on while it was read, in {looks} looks: {gone} findings were not those of every look"
        verdict = replace(verdict, notes=(*verdict.notes, said))
    return verdict


def _sizes(run_dir: Path) -> dict[Path, int]:
    paths, found = RunPaths(run_dir), {}
    for path in (paths.metrics, *paths.journal.glob("*"), *paths.event_files()):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.stat().st_size
    return found


def _look(run_dir: Path, receipt: str) -> HistoryVerdict:
    stage, bound = _config(run_dir)
    history = read_history(run_dir)
    if history.is_replay and not history.incarnations:
        raise ConfigError(f"{run_dir} is a replay, which keeps no journal: check the run that it has replayed")
    problems = history.damage
    found = read_found(history, problems)
    kept = read_chain(run_dir, problems)
    is_rl = stage == RL
    last_step = history.last_step if is_rl else max(found.metrics, default=0)
    unproven = 0
    if is_rl:
        problems += _of_groups(history, bound)
        unproven = look_at_rollouts(history, bound, problems)
    problems += _of_files(history, found, is_rl=is_rl, last_step=last_step)
    problems += chain_holds(kept)
    fork = fork_holds(run_dir, problems)
    notes = [*([fork] if fork else []), *(f"{each} is gone" for each in chain.gone(history, found))]
    if receipt:
        problem, note = judge_receipt(kept, receipt, last_step)
        problems += [problem] if problem else []
        notes = [note, *notes] if note else notes
    head = kept.receipts[-1] if kept.receipts else None
    return HistoryVerdict(
        stage=stage,
        steps=len(set(history.done)) if is_rl else last_step,
        groups=_count(history),
        weights_sha256=_weights(run_dir, found.export, problems),
        unproven_steps=unproven,
        receipt=head.value if head else None,
        receipt_step=head.line.step if head else None,
        notes=tuple(notes),
        problems=tuple(problems),
    )


def _config(run_dir: Path) -> tuple[str, Bound]:
    """The stage of the run, and its bound."""
    file = RunPaths(run_dir).run_toml
    try:
        tables = kept_tables(run_dir)
        run, policy = tables["run"], str(tables["run"].get("stale", STALE_BEFORE))
        groups = int(tables["batch"]["groups"]) if policy == "late" else 0
        bound = Bound(versions=int(run["max_staleness"]), policy=policy, batch_groups=groups)
        return str(run.get("stage", RL)), bound
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{run_dir} is not a run directory: {file}: {error}") from None


def _of_groups(history: RunHistory, bound: Bound) -> Iterator[str]:
    yield from rules.steps_are_whole(history)
    yield from rules.events_agree(history)
    yield from rules.groups_have_one_end(history)
    yield from rules.nothing_is_forgotten(history)
    yield from rules.order_is_strict(history, bound)
    yield from rules.credit_is_kept(history, bound)
    yield from chain.steps_end_once(history)
    yield from chain.weights_agree(history)


def _of_files(history: RunHistory, found: FoundFiles, *, is_rl: bool, last_step: int) -> Iterator[str]:
    if is_rl and not history.incarnations and (found.export.exists or found.checkpoints or found.metrics):
        yield "there is no journal, though there is what only a run leaves: an export, checkpoints or metrics"
        return
    yield from chain.config_is_recorded(history, found.config)
    yield from chain.checkpoints_are_whole(history, found.checkpoints)
    yield from chain.export_is_the_trainers(history, found.export, last_step)
    yield from chain.metrics_are_whole(found.metrics, ended=is_rl and history.has_ended, last_step=last_step)
    if is_rl:
        yield from chain.rollouts_are_the_trainers(history, found.rollouts)


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


def _weights(run_dir: Path, export: FoundExport, problems: list[str]) -> str | None:
    """The weights hash of the export, else of the newest checkpoint; None if there is neither."""
    if export.weights_sha256 is not None:
        return export.weights_sha256
    run = RunPaths(run_dir)
    newest = sorted(path for path in run.checkpoints.glob("step-*") if (path / "manifest.json").is_file())
    files = sorted(newest[-1].glob("model*.safetensors")) if newest else []
    try:
        return weights_sha256(files) if files else None
    except DataError as error:
        problems.append(str(error))
        return None
