"""`python -P -m headrace.data`: prepares the data in a process of its own, or checks what was prepared.

The command line stays small and free of threads: it forks the services later, and outlives them.
"""

import argparse
import sys
from pathlib import Path

from headrace.config.resolve import resolve
from headrace.config.schema import RunFile
from headrace.data.check_rows import check_rows
from headrace.data.prepare import LengthLimits, as_json, prepare
from headrace.data.prepare_examples import prepare_examples
from headrace.data.progress import RowProgress
from headrace.data.tasks import prepare_tasks
from headrace.model.model_check import check_model
from headrace.services.trainer.config.stage import stage_table
from headrace.wire.errors import ConfigError, DataError

BAD_INPUT = 2
"""Exit status; the message is on stderr."""


def main() -> int:
    """Writes the parquet files, and a summary as one JSON line on stdout; `--check` only checks and writes nothing."""
    parser = argparse.ArgumentParser(prog="headrace.data")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--check", action="store_true", help="look at what was prepared there, and write nothing")
    parser.add_argument("--progress", type=Path, help="file to write into how far the preparation is")
    options = parser.parse_args()
    try:
        config = resolve(options.config).config
        if options.check:
            check_rows(config, options.out)
            return 0
        prepared = _prompts if config.run.stage == "rl" else _examples
        found = prepared(config, options.out, RowProgress(options.progress))
    except (ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    sys.stdout.write(found + "\n")
    return 0


def _prompts(config: RunFile, out: Path, progress: RowProgress) -> str:
    facts = check_model(config.model.path, engine=config.rollout.engine)
    if config.environment.on:
        vocabulary, seed, model = facts.vocab_size, config.run.seed, config.model.path
        return as_json(
            prepare_tasks(
                config.data, config.environment, model, out, seed=seed, vocab_size=vocabulary, evals=config.eval
            )
        )
    context = min(config.rollout.context_length or facts.context_length, facts.context_length)
    # An evaluation's own limit takes no room from training prompts: engines stop at the context's end.
    longest = config.rollout.sampling.max_tokens
    room = context - longest
    if room < 1:
        raise ConfigError(
            f"[rollout.sampling] max_tokens: {longest} leave no room for a prompt in a context of {context} tokens"
        )
    room = min(config.data.max_prompt_tokens or room, room)
    limits = LengthLimits(max_prompt_tokens=room, vocab_size=facts.vocab_size, seed=config.run.seed)
    return as_json(prepare(config.data, config.model.path, limits, out, progress, config.eval))


def _examples(config: RunFile, out: Path, progress: RowProgress) -> str:
    facts = check_model(config.model.path, engine="")
    longest = min(stage_table(config, config.run.stage).max_tokens or facts.context_length, facts.context_length)
    limits = LengthLimits(max_prompt_tokens=longest, vocab_size=facts.vocab_size, seed=config.run.seed)
    return as_json(prepare_examples(config.data, config.run.stage, config.model.path, limits, out, progress))


def leave_torch_out() -> None:
    """Lets transformers do without torch, which costs two seconds of a CPU and which nothing here needs.

    transformers supports that for tokenizers: it asks `importlib.util.find_spec`, which finds no module that is None.
    """
    if "torch" not in sys.modules:  # A fork server has loaded it for the services.
        sys.modules["torch"] = None  # type: ignore[assignment]


if __name__ == "__main__":
    leave_torch_out()
    sys.exit(main())
