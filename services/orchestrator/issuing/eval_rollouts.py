"""`RUN/evaluations`: the rollouts of the newest evaluations. It is for people: no error in it ever ends a run."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.wire.contracts import Message, ScoredGroup
from headrace.wire.rundir import atomic, rollouts
from headrace.wire.rundir.layout import RunPaths, rollout_file
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator.evaluation")
_KEPT = 20
"""Files that are kept: older evaluations lose theirs, and keep their line in `evals.jsonl`."""


def write_evaluation(run_dir: Path, version: int, messages: Mapping[int, Message], sets: Mapping[int, str]) -> None:
    """Writes what came back of an evaluation, `messages` by prompt; `sets`: prompt -> its set. Blocking."""
    folder = RunPaths(run_dir).evaluations
    try:
        atomic.remove_left_overs(folder)
        rollouts.write(folder, version, _rows(version, messages, sets))
        for oldest in sorted(rollouts.files(folder))[:-_KEPT]:
            rollout_file(folder, oldest).unlink(missing_ok=True)
    except OSError as error:
        log.error("evaluation_not_kept", version=version, error=str(error))


def _rows(version: int, messages: Mapping[int, Message], sets: Mapping[int, str]) -> Iterator[dict[str, object]]:
    for prompt, name in sets.items():
        message = messages.get(prompt)
        if message is None or not isinstance(message.body, ScoredGroup):
            continue
        of_group = rollouts.of_group(version, message.header, message.body) | {rollouts.SET: name}
        for number, (rollout, score) in enumerate(zip(message.body.group.rollouts, message.body.scores, strict=True)):
            yield {**of_group, **rollouts.row_of(rollout, score), "rollout_index": number, "trained_tokens": 0}
