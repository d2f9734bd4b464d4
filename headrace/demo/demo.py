"""Prepares the demo: makes everything it needs inside the run directory; after that it is an ordinary run."""

import json
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from headrace.config.resolve import CUDA_HEAD_DIM, Resolved, resolve
from headrace.config.run_dir import absent_folders, check_fresh, make_private, take_away
from headrace.demo.arithmetic import CHARACTERS, Sum, exercises
from headrace.doctor.placement import check_any
from headrace.doctor.sizes import model_parameters
from headrace.inspect.waits import in_time
from headrace.model.tiny_models import END, Shape, character_tokenizer, write_model
from headrace.run.child import run_child
from headrace.run.preload import begin_fork_server
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import TrainerTable
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.lock import RunLock
from headrace.supervisor.once import ChildFailedError, child_environment
from headrace.wire.config.settings import ModelTable
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.rundir.jsonl import Record, number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import last_steps

HELD_OUT = 256
_PACE_STEPS = 21
"""Steps whose median time is that of a step."""
_SFT_S = 600.0
_MADE = frozenset({"run.toml", "prompts.jsonl", "held_out.jsonl", "base", "sft", "model"})
"""Entries that a demo may leave in its folder, also when it is killed."""

RUN_TOML = """\
# Written by `headrace demo`: a run like any other. `headrace train` runs it too.
[run]
id = "demo"
max_steps = 100
max_staleness = 1

[model]
path = "model"

[data]
path = "prompts.jsonl"
eval_path = "held_out.jsonl"

[batch]
groups = 128
group_size = 4

[algorithm]
# GRPO with DAPO's clip and mean over tokens; any other of `headrace algorithms` runs on this file too.
name = "dapo"
dynamic_sampling = false

[critic]
# Of algorithms that have one, and for a model as small as this.
learning_rate = 2e-3
pretrain_steps = 5

[rollout]
replicas = 2
max_rows = 256

[rollout.sampling]
max_tokens = 5

[[reward.scorers]]
name = "exact_match"

[trainer]
learning_rate = 5e-4
warmup_steps = 5
schedule = "linear"
checkpoint_every = 20

[eval]
every = 25

[sft]
# Stopped while the loss still falls: the model gets some sums right, and RL has something to build on.
steps = 400
target_loss = 0.42
batch_size = 256
learning_rate = 2e-3
warmup_steps = 20
schedule = "constant"
"""


@contextmanager
def prepared_demo(
    run_dir: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    check: Callable[[Resolved], None] | None = None,
) -> Iterator[tuple[Resolved, RunLock, ForkServer | None]]:
    """Makes model and data, runs the supervised stage, and yields the RL run's config, lock and fork server.

    The lock is held from before anything is removed to the end of the block, in which the run is started. The fork
    server forks the supervised stage too: the libraries are imported once. None where the run has none.
    `check` raises ConfigError for problems that would stop the run after this minute of work. Leftovers of a killed
    demo are replaced. A run directory that did not exist before is removed again on an error, except for the log of a
    stage that failed. Raises ConfigError if something else lies there, or another headrace uses it, ChildFailedError or
    WaitTimeoutError naming that log.
    """
    check_fresh(run_dir)
    run_dir = run_dir.resolve()
    absent = absent_folders(run_dir)
    make_private(absent)
    with ExitStack() as held:
        lock = RunLock(run_dir)
        held.callback(lock.release)
        # Again: another demo may have begun and ended since.
        check_fresh(run_dir)
        resolved, forks = _prepared(run_dir, lock, arguments, environment, say, check=check, absent=absent, held=held)
        yield resolved, lock, forks


def _prepared(
    run_dir: Path,
    lock: RunLock,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    check: Callable[[Resolved], None] | None,
    absent: Sequence[Path],
    held: ExitStack,
) -> tuple[Resolved, ForkServer | None]:
    """`absent`: the folders that this start has made. `held` closes the fork server. The caller holds the lock."""
    forks = None
    folder = RunPaths(run_dir).demo
    _clear(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config = RunPaths(run_dir).demo_toml
        config.write_text(RUN_TOML, encoding="utf-8")
        resolved = resolve(config, arguments=arguments, environment=environment)
        check_any(resolved, environment)
        if check:
            check(resolved)
        # SGLang's attention on a GPU has no kernel for the narrow heads that suit a CPU.
        shape = Shape(head_dim=CUDA_HEAD_DIM) if resolved.config.run.device.startswith("cuda") else Shape()
        _make_things(folder, shape, seed=resolved.config.run.seed)
        millions = model_parameters(folder / "base") / 1e6
        say(
            f"{HELD_OUT} held-out and {8100 - HELD_OUT} training sums, a model of {millions:.1f} M parameters: {folder}"
        )
        if resolved.config.model.path == folder / "model":
            say("supervised stage: the model learns a little first")
            run = resolved.config.run
            env = child_environment(dict(environment), threads=run.threads, device=run.device)
            if forks := begin_fork_server(resolved.config, env, folder / "base"):
                held.callback(forks.close)
            _supervise(folder, resolved, environment, lock, forks, log=RunPaths(run_dir).log("sft"))
    except (ChildFailedError, WaitTimeoutError):
        # The log that the error names stays; the demo may be started again in the same folder.
        shutil.rmtree(folder)
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        take_away(absent)
        raise
    return resolved, forks


def _clear(folder: Path) -> None:
    """Removes what an earlier demo made, also in part. Raises ConfigError if the folder holds anything else."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder} is not a folder of a demo: choose another folder with --run-dir")
    foreign = sorted({path.name for path in folder.iterdir()}.difference(_MADE)) if folder.exists() else []
    if foreign:
        raise ConfigError(
            f"{folder} contains files that no demo made ({foreign[0]}): choose another folder with --run-dir"
        )
    if folder.exists():
        shutil.rmtree(folder)


def _make_things(folder: Path, shape: Shape, *, seed: int) -> None:
    training, held_out = exercises(seed=seed, held_out=HELD_OUT)
    for name, sums in (("prompts.jsonl", training), ("held_out.jsonl", held_out)):
        lines = [json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in sums]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_model(folder / "base", character_tokenizer(CHARACTERS), shape, seed=seed)
    (folder / "sft").mkdir(exist_ok=True)
    _write_examples(RunPaths(folder / "sft").examples, training)


def _write_examples(path: Path, sums: Sequence[Sum]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tokenizer = character_tokenizer(CHARACTERS)
    end = tokenizer.token_to_id(END)
    kind = pa.list_(pa.int32())
    prompts = [tokenizer.encode(one.prompt).ids for one in sums]
    completions = [[*tokenizer.encode(one.answer).ids, end] for one in sums]
    table = {"prompt_ids": pa.array(prompts, kind), "completion_ids": pa.array(completions, kind)}
    pq.write_table(pa.table(table), path)


def _supervise(
    folder: Path,
    resolved: Resolved,
    environment: Mapping[str, str],
    lock: RunLock,
    forks: ForkServer | None,
    *,
    log: Path,
) -> None:
    """Runs the trainer's stage `sft` to its end; `model` is what it exports. Raises ChildFailedError naming its log."""
    config = resolved.config
    stage = folder / "sft"
    settings = StageSettings(
        run=config.run.model_copy(update={"stage": "sft"}),
        model=ModelTable(path=folder / "base", dtype="float32"),
        sft=config.sft,
        # The stage takes seconds: if it dies, it starts over.
        trainer=TrainerTable(checkpoint_every=1_000_000),
        run_dir=stage,
    )
    log.parent.mkdir(exist_ok=True)
    what = "the supervised stage"
    words = (what, "headrace.services.trainer", "--stage", "sft")

    def tell() -> str:
        said = sft_progress(last_steps(stage, _PACE_STEPS), config.sft.steps)
        lock.record(doing=f"{what}, {said}")
        return said

    lock.record(doing=what)
    run_child(
        *words, settings=settings, environment=environment, timeout_s=_SFT_S, log=log, progress=tell, fork_server=forks
    )
    lock.record(doing="preparing the run")
    RunPaths(stage).export.rename(folder / "model")


def sft_progress(rows: Sequence[Record], most: int) -> str:
    """How far the supervised stage is, of its newest steps: `step 120 of at most 400, loss 0.83, about 40 s left`."""
    if not rows:
        return "its libraries are imported"
    step, loss = number_of(rows[-1]["step"]) or 0, number_of(rows[-1].get("loss"))
    ends = [end for row in rows if (end := number_of(row.get("t"))) is not None]
    said = [f"step {step:.0f} of at most {most}"]
    said += [f"loss {loss:.2f}"] if loss is not None else []
    if len(ends) > 1:
        step_s = statistics.median(late - early for early, late in pairwise(ends))
        said.append(f"at most {in_time(step_s * (most - step))} left")
    return ", ".join(said)
