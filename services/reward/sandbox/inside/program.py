"""One test of one program, in a forked child that has given up everything: it never returns.

This is the one place where text becomes code, and what the sandbox is for. From here on this process is not
trusted: what it writes is data, and its verdict is made outside.

File descriptors: 0 standard input, 1 standard output, 2 standard error, 3 the returned value, 4 the program.
"""

import atexit
import builtins
import io
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from headrace.services.reward.sandbox.inside.plain import decode, encode
from headrace.services.reward.sandbox.inside.prelude import names

_INPUT, _PRINTS, _NOTES, _VALUE, _PROGRAM = 0, 1, 2, 3, 4
SLEEPS = 124
"""Exit status, as of `timeout`: it went to sleep for longer than it had."""
_CHUNK = 1 << 20
_FILE = "/tmp/program.py"
_PRELUDE: dict[str, object] = {}
_NO_PRELUDE: Mapping[str, object] = types.MappingProxyType({})
_NO_NAMES: Mapping[str, object] = types.MappingProxyType({"not a name": None})
_REHEARSALS = 3
_REHEARSAL = """
import sys
from collections import defaultdict, deque, Counter
from functools import lru_cache
from heapq import heappush, heappop

class Node:
    def __init__(self, value, next=None):
        self.value = value
        self.next = next

@lru_cache(maxsize=None)
def count(n):
    return n if n < 2 else count(n - 1) + count(n - 2)

def solve(numbers, k=2):
    seen = defaultdict(list)
    heap, queue = [], deque()
    for index, number in enumerate(numbers):
        seen[number % k].append(index)
        heappush(heap, (-number, index))
        queue.append(number)
    while heap and queue:
        heappop(heap)
        queue.popleft()
    grid = [[0] * 3 for _ in range(3)]
    grid[1][2] = max(grid[0][0], *numbers) // 2
    words = {word: len(word) for word in "a few words".split()}
    return sorted(seen.items()), sum(map(int, ["1", "2"])), " ".join(str(x) for x in grid[1]), words, Counter("aab")

data = sys.stdin.read().split()
try:
    int("x")
except ValueError as error:
    text = f"{error} {3.14159:.2f} {len(data):>3}"
print(solve([3, 1, 2]), Node(1).value, count(9), text)
sys.stdout.write("")
if __name__ == "__main__":
    print("-")
"""
"""What programs do most: run ahead, the interpreter has specialized its code and warmed its caches."""


def prepare() -> None:
    """In the fork server, before the first fork: what every child would have to do, or to fault in, for itself."""
    _open_streams()
    vars(builtins).update(exit=_quit, quit=_quit)  # As `site` has them, which is not imported.
    _PRELUDE.update(names())
    for _ in range(_REHEARSALS):
        _execute(_REHEARSAL, "rehearsal", _NO_NAMES)
        decode(encode([1, 2.5, "x", (1, {"a": None})]))
    del sys.modules["rehearsal"]
    sys.stdout.flush()
    _open_streams()


def run(timeout_s: float) -> NoReturn:
    """Reads the program and its test, runs it, and leaves. After `timeout_s` of its own it will be killed."""
    vars(time)["sleep"] = _sleeper(time.sleep, time.process_time, timeout_s)
    head, _, source = _read(_PROGRAM).partition("\n")
    os.close(_PROGRAM)
    os.chdir("/tmp")
    status = 1
    try:
        status = _call(source, *head.split()) if head else _script(source)
    except SystemExit as leaving:
        status = _status(leaving.code)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    _leave(status)


def _quit(code: object = None) -> NoReturn:
    raise SystemExit(code)


def _sleeper(sleep: Callable[[float], None], cpu_s: Callable[[], float], timeout_s: float) -> Callable[[float], None]:
    """A sleep that would last beyond the test's time ends it at once; not so where something else could still happen
    meanwhile, in another thread or by a signal. It is the test that would wait, not one in the queue behind it. What it
    waited for a CPU is not counted.
    """
    slept = 0.0

    def sleep_or_leave(seconds: float, /) -> None:
        nonlocal slept
        is_alone = _is_alone()
        if is_alone and slept + cpu_s() + seconds > timeout_s:
            timers = (signal.ITIMER_REAL, signal.ITIMER_PROF, signal.ITIMER_VIRTUAL)
            if not any(any(signal.getitimer(which)) for which in timers):
                os._exit(SLEEPS)
        sleep(seconds)
        slept += seconds if is_alone else 0.0

    return sleep_or_leave


def _is_alone() -> bool:
    """No thread but the first. The fork server imported the module in a way of its own: hence not at the top."""
    threading: Any = sys.modules["threading"]
    return len(threading._active) == 1


def _script(source: str) -> int:
    _execute(source, "__main__")
    return 0


def _call(source: str, function: str, prelude: str = "") -> int:
    """The arguments come on standard input, the value goes out on a descriptor of its own; prints are mere notes."""
    arguments = decode(_read(_INPUT))
    os.dup2(_NOTES, _PRINTS)
    found = _find(_execute(source, "solution", _PRELUDE if prelude else {}), function)
    value = encode(found(*arguments)).encode()
    while value:
        value = value[os.write(_VALUE, value) :]
    return 0


def _execute(source: str, name: str, prelude: Mapping[str, object] = _NO_PRELUDE) -> dict[str, object]:
    module = types.ModuleType(name)
    module.__file__ = _FILE
    sys.modules[name] = module
    code = compile(source, "<program>", "exec", dont_inherit=True)
    if prelude:
        # As builtins, so that what the program does not define is not found as its function. Only what it names:
        # each object that is touched is a page of memory that the fork has to copy.
        vars(builtins).update({name: prelude[name] for name in _names(code) if name in prelude})
    exec(code, module.__dict__)
    return module.__dict__


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for held in code.co_consts:
        if isinstance(held, types.CodeType):
            yield from _names(held)


def _find(names: dict[str, Any], function: str) -> Any:
    """A function of the program, or a method of its class Solution, as LeetCode has them."""
    if function in names:
        return names[function]
    if "Solution" in names:
        return getattr(names["Solution"](), function)
    raise NameError(f"the program defines no {function}")


def _read(fd: int) -> str:
    """The whole file, by position: other children read the same one."""
    chunks: list[bytes] = []
    at = 0
    while chunk := os.pread(fd, _CHUNK, at):
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks).decode()


def _open_streams() -> None:
    """On descriptors 0 to 2, even if they are replaced later: a child puts its test's files there."""
    options = {"encoding": "utf-8", "errors": "replace", "closefd": False}
    for name, fd in (("stdin", _INPUT), ("stdout", _PRINTS), ("stderr", _NOTES)):
        stream = open(fd, "w" if fd else "r", 1 if fd == _NOTES else -1, **options)  # type: ignore[call-overload]  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _status(code: object) -> int:
    """Exit status, read from the argument of sys.exit as the interpreter reads it."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _leave(status: int) -> NoReturn:
    """As the interpreter leaves, but for its own tidying up: threads end, atexit runs, output is flushed, that in
    wrappers of the program's own included.
    """
    streams = [sys.__stdout__, sys.__stderr__, sys.stdout, sys.stderr]
    try:
        threading: Any = sys.modules["threading"]
        if not _is_alone() or threading._threading_atexits:
            threading._shutdown()
        atexit._run_exitfuncs()
        own = [value for value in vars(sys.modules.get("__main__")).values() if isinstance(value, io.IOBase)]
        for stream in [*own, *streams]:
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:
        status = status or 1
    os._exit(status)
