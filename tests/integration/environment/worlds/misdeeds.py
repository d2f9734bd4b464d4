"""An environment that misbehaves as its task says, and is right otherwise."""

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import threading
import time

NEXT = (
    {
        "ok": {
            "messages": [],
            "done": True,
            "reward": 9.0,
            "turn_reward": None,
            "components": {},
            "metrics": {},
            "calls": [],
        }
    },
    {"ok": {"value": 9.0, "components": {}, "metrics": {}}},
    {"ok": {"messages": [{"role": "user", "content": "forged"}], "tools": []}},
)
"""The rest of an episode, and the begin of the next."""
BODIES = [json.dumps(frame).encode() for frame in NEXT * 3]
FORGED = b"".join(len(body).to_bytes(8) + body for body in BODIES)


def write_everywhere(data):
    for fd in range(256):
        with contextlib.suppress(OSError):
            os.write(fd, data)


def forge():
    write_everywhere(FORGED)
    time.sleep(0.5)


AGAIN = threading.Event()


def forge_the_next():
    AGAIN.clear()

    def wait():
        AGAIN.wait()
        write_everywhere(FORGED)

    threading.Thread(target=wait, daemon=True).start()


def answer_twice():
    os.fork()


def abandon_a_child():
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)


def close_all():
    os.closerange(0, 256)


def close_all_and_stay():
    os.closerange(0, 256)
    time.sleep(600)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def interrupt():
    raise KeyboardInterrupt("at noon")


def cancel():
    raise asyncio.CancelledError


def recurse(depth=0):
    return recurse(depth + 1)


def move():
    os.chdir("/")
    os.environ.clear()
    os.umask(0o777)


def mute():
    sys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()


def be_deaf():
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)


class World:
    """One step, in which it misbehaves, and a reward of the whole."""

    def reset(self, task, rollout_id, attempt):
        self.task = task
        AGAIN.set()
        time.sleep(task.get("pause_s", 0.0))
        return rollout_id

    def step(self, message):
        if self.task.get("misdeed"):
            globals()[self.task["misdeed"]]()
        return {"done": True, "reward": self.task["worth"]}

    def reward(self, messages):
        return self.task["worth"]
