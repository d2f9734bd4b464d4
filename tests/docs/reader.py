"""Somebody who types what the pages say: a folder, a shell, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.demo.arithmetic import CHARACTERS, exercises
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.lifecycle import die_with_parent
from tests.docs.console import Case
from tests.docs.pages import ROOT

COMMAND_S = 240
"""Deadline of one line, on a machine that has others to serve."""
RUN_TOML = """
[run]
id = "mine"
max_steps = 100000
max_staleness = 1
[model]
path = "MODEL"
[data]
path = "prompts.jsonl"
[batch]
groups = 4
group_size = 4
[rollout]
replicas = 2
[rollout.sampling]
max_tokens = 6
[[reward.scorers]]
name = "exact_match"
[[reward.scorers]]
name = "length"
options = { target = 3 }
weight = 0.1
optional = true
[trainer]
learning_rate = 1e-3
checkpoint_every = 20
keep_checkpoints = 1000
[orchestrator]
operator_token_file = "token.txt"
"""
FILES = {
    "run.toml": RUN_TOML,
    "token.txt": "the-operators-token-of-the-pages\n",
    "chat.json": '[{"role": "user", "content": "12+34="}]\n',
    "pairs.jsonl": '{"prompt": "6*7=", "completion": "42", "answer": "42"}\n',
    "trackers.env": "WANDB_API_KEY=0123\n",
    "my-password": "of-my-own",
    "my-token": "hf_of-my-own",
}


def _at_terminal() -> None:
    """In the child: a shell's job in the background would have inherited that Ctrl-C is ignored."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Served:
    """A command that goes on until Ctrl-C."""

    def __init__(self, text: str, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self.text = text
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                ["bash", "-c", text],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                # As in a terminal, Ctrl-C reaches the whole group.
                start_new_session=True,
                preexec_fn=_at_terminal,
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = COMMAND_S) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None or condition(), f"{self.text} ended before {what}:\n{self.said[-3000:]}"
            assert time.monotonic() < end, f"{self.text}: no {what} within {seconds} s:\n{self.said[-3000:]}"
            time.sleep(0.1)

    def wait_for(self, pattern: str, seconds: float = COMMAND_S) -> None:
        """Until it has said so."""
        self.wait_until(lambda: re.search(pattern, self.said), repr(pattern), seconds)

    def ctrl_c(self) -> str:
        """Presses it and returns all that was said; a command that only looks calls that a success."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.end()

    def end(self, *, status: int = 0) -> str:
        """Waits until it has ended; the status is looked at for commands of ours alone."""
        found = self.process.wait(COMMAND_S)
        assert found == status or not self.text.startswith("headrace"), f"{self.text}: {found}\n{self.said[-3000:]}"
        return self.said

    def close(self) -> None:
        """Whatever is left of it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(30)


class Reader:
    """A folder with what the pages assume to be there, and the variables that stand for addresses."""

    def __init__(self, folder: Path, words: Mapping[str, str]) -> None:
        self.folder = folder
        self._words = dict(words)
        self.variables: dict[str, str] = {}
        for name in ("examples", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        for name, text in FILES.items():
            (folder / name).write_text(text)
        (folder / "home").mkdir()
        shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=32)
        write_model(folder / "MODEL", character_tokenizer(CHARACTERS), shape, seed=1)
        sums, _ = exercises(seed=1, held_out=16)
        rows = [(one.prompt, one.answer, f"{one.answer}9") for one in sums[:64]]
        names = ("prompt", "answer", "rejected")
        lines = [json.dumps({**dict(zip(names, row, strict=True)), "chosen": row[1]}) for row in rows]
        (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "BROWSER": "echo",
            "PYTHONUNBUFFERED": "1",
            "HEADRACE_OPERATOR_TOKEN_FILE": "token.txt",
            **self.variables,
        }

    def shell(self, text: str, *, folder: Path | None = None, seconds: float = COMMAND_S) -> str:
        """Runs it; what it printed. It must succeed."""
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{text}"],
            cwd=folder or self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            preexec_fn=die_with_parent,
            check=False,
        )
        assert done.returncode == 0, f"{text}: status {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def serve(self, text: str, *, folder: Path | None = None) -> Served:
        log = self.folder / f"said-{len(list(self.folder.glob('said-*')))}.log"
        return Served(text, folder or self.folder, self.environment, log)

    def do(self, case: Case, *, folder: Path | None = None, seconds: float = COMMAND_S) -> str:
        """The line as it is documented, with the substitutions of the tables; it must say what it should."""
        text = case.command(self._words)
        if not case.until_ctrl_c:
            said = self.shell(text, folder=folder, seconds=seconds)
        else:
            served = self.serve(text, folder=folder)
            try:
                served.wait_for(case.says)
                said = served.ctrl_c()
            finally:
                served.close()
        assert re.search(case.says, said), f"{text}\nwithout {case.says!r}:\n{said[-4000:]}"
        return said
