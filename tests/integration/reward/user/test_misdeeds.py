"""A user's function that misbehaves on purpose: what it does is its own sample's end, and no other sample's.

It is trusted with its own score, so these ask for another's: each sample has a score of its own, and after each misdeed
the same worker, or the one in its place, scores others.
"""

import secrets
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from headrace.services.reward.scorer import Scorer
from tests.integration.reward.user.test_user_scorers import samples
from tests.leftovers import left_running
from tests.reward_scorers import loaded_scorer
from tests.waiting import until_async

WORTH = 0.25
"""Score of a sample whose misdeed does not cost it."""
MODULE = """
import asyncio, io, json, os, signal, struct, sys, threading, time

FORGED = json.dumps({"result": {"value": 9.0}}).encode()
FORGED = struct.pack(">Q", len(FORGED)) + FORGED

def write_everywhere(data):
    for fd in range(256):
        try:
            os.write(fd, data)
        except OSError:
            pass

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

def write_garbage():
    write_everywhere(b"\\xff" * 64)
    time.sleep(600)

def begin_a_frame():
    write_everywhere(struct.pack(">Q", 1 << 20) + b"{")

def answer_twice():
    os.fork()

def abandon_a_child():
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)

def leave_a_child():
    if os.fork() == 0:
        time.sleep(600)

def leave_a_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()

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

def shout():
    print("\\n".join(["x" * 1023] * 4096), flush=True)

def move():
    os.chdir("/")
    os.environ.clear()
    os.umask(0o777)

def mute():
    sys.stdout = sys.stderr = sys.__stdout__ = io.StringIO()
    sys.stdin.close()

def be_deaf():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass

def score(completion, misdeed="", pause_s=0.0, **columns):
    AGAIN.set()
    if misdeed:
        globals()[misdeed]()
    time.sleep(pause_s)
    return float(completion)
"""
ENDS = {
    "forge": "its process wrote into the connection to its service",
    "write_garbage": "its process wrote into the connection to its service",
    "begin_a_frame": "no answer within 4 s",
    "abandon_a_child": "its process exited with status 3",
    "close_all": "its process closed its socket",
    "close_all_and_stay": "its process closed its socket",
    "stop": "no answer within 4 s",
    "interrupt": "KeyboardInterrupt: at noon",
    "cancel": "CancelledError",
    "recurse": "RecursionError: maximum recursion depth exceeded",
}
"""Misdeed -> what the verdict says of a sample that it costs its score."""
HARMLESS = ("answer_twice", "leave_a_child", "leave_a_thread", "shout", "move", "mute", "be_deaf")


def loaded(folder: Path) -> AbstractAsyncContextManager[Scorer]:
    """The function in one worker: what comes after a misdeed comes to the same process, or to its successor."""
    (folder / "misdeeds.py").write_text(MODULE)
    return loaded_scorer("misdeeds:score", timeout_s=4.0, processes=1, user_path=folder)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Is in the environment of every process that is started here."""
    found = secrets.token_hex(8)
    monkeypatch.setenv("MISDEEDS", found)
    return found


async def test_misbehaving_code_fails_only_its_own_score_and_the_reason_is_given(tmp_path: Path, mark: str) -> None:
    found, others = {}, {}
    async with loaded(tmp_path) as scorer:
        for misdeed in (*ENDS, *HARMLESS):
            (one,) = await scorer.score(samples(str(WORTH), group="its own", misdeed=misdeed))
            found[misdeed] = one.reason if one.failed else one.value
            rest = await scorer.score([*samples("0.5", "0.75", group="a"), *samples("1", group="b")])
            others[misdeed] = [one.value for one in rest]
        assert left_running(mark), "nothing was running"
    assert set(map(tuple, others.values())) == {(0.5, 0.75, 1.0)}, others
    said = {misdeed: str(found.pop(misdeed)) for misdeed in ENDS}
    unsaid = {misdeed: words for misdeed, words in said.items() if ENDS[misdeed] not in words}
    assert not unsaid, unsaid
    assert found == dict.fromkeys(HARMLESS, WORTH)
    await until_async(lambda: not left_running(mark), "all processes to be gone", detail=lambda: left_running(mark))


async def test_a_forged_late_score_never_counts_for_the_next_sample(tmp_path: Path) -> None:
    async with loaded(tmp_path) as scorer:
        (own,) = await scorer.score(samples(str(WORTH), misdeed="forge_the_next"))
        assert own.value == WORTH
        (other,) = await scorer.score(samples("0.5", pause_s=1.0))
        assert other.failed and ENDS["forge"] in other.reason, other
        # With the process its thread has ended.
        assert [one.value for one in await scorer.score(samples("0.5", "0.75", pause_s=1.0))] == [0.5, 0.75]
