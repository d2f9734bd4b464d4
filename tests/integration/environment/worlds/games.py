"""Environments and tools as a user writes them; imports nothing of ours but one error."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Literal


class Adder:
    """Asks for sums until one is right; counts its episodes."""

    episodes = 0

    def reset(self, task, rollout_id, attempt):
        self.episodes += 1
        self.wanted = task["a"] + task["b"]
        self.tries = 0
        return [{"role": "user", "content": f"{task['a']}+{task['b']}= ({self.episodes}, {rollout_id}, {attempt})"}]

    async def step(self, message):
        await asyncio.sleep(0)
        self.tries += 1
        right = message["content"].strip() == str(self.wanted)
        if right or self.tries == 3:
            return {"done": True, "reward": float(right), "turn_reward": 0.5, "metrics": {"tries": self.tries}}
        return {"done": False, "messages": [{"role": "user", "content": "no"}], "turn_reward": -0.25}


class Clerk:
    """Has a method for a tool, and gives its reward at the end."""

    tools = ("look_up",)

    def reset(self, task, rollout_id, attempt):
        self.asked = []
        return task["question"]

    def look_up(self, name: str, year: int = 2026) -> dict:
        """Looks a person up.

        Args:
            name: Who it is.
            year: In which year.
        """
        self.asked.append(name)
        return {"name": name, "year": year}

    def reward(self, messages):
        return {"value": 1.0 if self.asked else 0.0, "components": {"asked": len(self.asked)}}


class Raises:
    def reset(self, task, rollout_id, attempt):
        return {}["no such task"]


class Says:
    """Returns from step what its task says."""

    def reset(self, task, rollout_id, attempt):
        self.answer = eval(task["answer"])
        return "go"

    def step(self, message):
        return self.answer


class Chooser:
    """Offers other tools from task to task."""

    def reset(self, task, rollout_id, attempt):
        self.tools = [task["tool"]] if task["tool"] else []
        return "go"

    def up(self) -> str:
        """Up."""
        return "up"

    def down(self) -> str:
        """Down."""
        return "down"


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def grow(kind: Literal["memory", "text", "prints"], mib: int) -> str:
    """Uses so much of something."""
    if kind == "memory":
        return str(len(bytearray(mib << 20)))
    if kind == "prints":
        for _ in range(mib):
            sys.stdout.write("x" * (1 << 20))
        return "printed"
    return "y" * (mib << 20)


def hang() -> str:
    """Starts a process that outlives it, and never returns."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    while True:
        time.sleep(1)


def spin() -> str:
    """Uses a CPU, and never returns."""
    while True:
        pass


def end() -> str:
    """Ends its own process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def search() -> str:
    """Its server is away."""
    from headrace.environments import ToolLostError

    raise ToolLostError("the search server does not answer")


def fail(text: str) -> str:
    """Raises."""
    raise RuntimeError(text)


def look(path: str) -> str:
    """What is at a path: the text of a file, the names in a folder, or the error."""
    if os.path.isdir(path):
        return ",".join(sorted(os.listdir(path)))
    with open(path, errors="replace") as file:
        return file.read()


def note(path: str, text: str) -> str:
    """Writes a file."""
    with open(path, "w") as file:
        file.write(text)
    return "written"


def variables() -> dict:
    """Its environment, its folder, and where temporary files go."""
    return {**os.environ, "cwd": os.getcwd(), "temporary": tempfile.gettempdir()}


def processes() -> list:
    """The command lines of all processes that it sees."""
    numbers = [name for name in os.listdir("/proc") if name.isdecimal()]
    return [open(f"/proc/{name}/cmdline").read() for name in numbers]


def connect(port: int) -> str:
    """Opens a connection on this machine."""
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    return "connected"


def unhinted(a):
    return a
