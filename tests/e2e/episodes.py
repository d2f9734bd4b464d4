"""Tiny runs whose rows are played: a game that answers by rules, and a chat template of a few characters."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.e2e.harness import TinyRun

TEMPLATE = (
    "{% for m in messages %}{{ '=' + m.content + '<end>' if m.role == 'assistant' else m.content }}{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
TABLE = """
[environment]
name = "game:Sums"
path = "game"
slots = 4
max_turns = 3
max_turn_tokens = 3
episode_s = 100
"""
GAME = '''
class Sums:
    """Asks again until the answer begins with a digit that it likes."""

    def reset(self, task, rollout_id, attempt):
        self.turns, self.liked = 0, False
        return task["prompt"].rstrip("=")

    def step(self, message):
        self.turns += 1
        self.liked = message["content"][:1] in list("02468")
        note = {"turn_reward": 0.125, "metrics": {"asked": self.turns}}
        return note if self.liked else {"done": False, "messages": [{"role": "user", "content": "+0"}], **note}

    def reward(self, messages):
        return float(self.liked)
'''

AGENT_TABLE = TABLE.replace('name = "game:Sums"', 'command = ["python", "agent.py"]\nreward_file = "reward.txt"')
AGENT = """
import json, os, urllib.request

def ask(messages):
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]

def score(number):
    with open("reward.txt", "w") as file:
        file.write(str(number))

score(0.0)
messages = [{"role": "user", "content": json.load(open("task.json"))["prompt"].rstrip("=")}]
while messages[-1]["role"] == "user":
    messages.append(ask(messages))
    if messages[-1]["content"][:1] in list("02468"):
        score(1.0)
    else:
        messages.append({"role": "user", "content": "+0"})
"""
"""The game's rules in a program: it asks again until the answer begins with a digit that it likes, or until a limit."""

_TURN = "        self.turns += 1"
_HELD = """        while __import__('os').path.exists(HOLD):
            __import__('time').sleep(0.02)
"""


def holding_game(file: Path) -> str:
    """The game, which stands still in a step while there is a file, whose folder is among `environment.folders`."""
    return f"HOLD = {str(file)!r}\n{GAME.replace(_TURN, _HELD + _TURN)}"


def played_run(folder: Path, *, game: str = GAME, table: str = TABLE, **shape: Any) -> TinyRun:
    """A tiny run in which every row is played, by the game or by the agent beside it; `shape` as of TinyRun."""
    made = TinyRun(folder, **{"steps": 6, "replicas": 1, **shape})
    file = made.folder / "model" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": TEMPLATE}))
    (made.folder / "game").mkdir()
    (made.folder / "game" / "game.py").write_text(game)
    if table is AGENT_TABLE:
        (made.folder / "game" / "agent.py").write_text(AGENT)
    toml = (made.folder / "run.toml").read_text().replace('name = "length"', 'name = "environment"')
    toml = toml.replace("options = { target = 3 }", "").replace('component = "length"', 'component = "environment"')
    toml = toml.replace("max_tokens = 6", "max_tokens = 12").replace("correct_above = -0.5", "correct_above = 0.5")
    (made.folder / "run.toml").write_text(toml + table)
    return made


def trained_rows(run: TinyRun, *, groups: int) -> list[dict[str, Any]]:
    """The rollouts with a reward of a finished run, all of whose `groups` of four were trained.

    Tokens that an episode read between two turns are there, and were neither sampled nor trained.
    """
    verdict = run.check()
    assert verdict["groups"] == {"issued": groups, "trained": groups, "dropped": {}, "open": 0}, verdict
    files = sorted((run.run_dir / "rollouts").glob("step-*.parquet"))
    rows: list[dict[str, Any]] = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(rows) == 4 * groups and {row["replica_id"] for row in rows} == {"environment-0"}
    scored = [row for row in rows if row["reward"] is not None]
    read = [sum(one is None for one in row["logprobs"]) for row in scored]
    assert max(read) > 0, "no episode had a second turn"
    assert [row["trained_tokens"] for row in scored] == [
        row["tokens"] - less for row, less in zip(scored, read, strict=True)
    ]
    assert all(step["logprob_gap_max"] <= 1e-4 for step in run.metrics())
    return scored


def kill_a_child(worker: int, word: bytes = b"headrace.services.environment.child.main") -> bool:
    """Kills one process that plays episodes for the worker, found by a word of its command line."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdecimal() else []
            plays = word in words and not words[0].endswith(b"bwrap")
            if plays and _is_under(folder, worker):
                os.kill(int(folder.name), signal.SIGKILL)
                return True
        except OSError:
            continue
    return False


def _is_under(folder: Path, ancestor: int) -> bool:
    """Whether a process descends from another."""
    while folder.name not in ("0", "1"):
        parent = folder.joinpath("stat").read_text().rpartition(") ")[2].split()[1]
        if int(parent) == ancestor:
            return True
        folder = Path("/proc") / parent
    return False
