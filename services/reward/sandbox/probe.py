"""Proof, before the first program, that a sandbox isolates: a program of ours looks around in it."""

import json

from headrace.services.reward.sandbox.bubblewrap import WAYS_OUT
from headrace.services.reward.sandbox.errors import SandboxError
from headrace.services.reward.sandbox.inside.plain import encode
from headrace.services.reward.sandbox.outcome import Program
from headrace.services.reward.sandbox.slot import Slot, sealed, text_of
from headrace.wire.errors import ConfigError

_LOOK = """
import ctypes, errno, os, socket, sys

def fails(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENETUNREACH)
    return False

def capabilities(libc):
    header, held = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    return libc.capget(header, held) or any(held)

def look():
    libc = ctypes.CDLL(None)
    with open("/tmp/room", "w") as file:
        file.write("yes")
    return {
        "an unprivileged uid": os.getuid() != 0 and os.geteuid() != 0,
        "an empty environment": not os.environ,
        "no network": fails(socket.socket),
        "no new processes": fails(os.fork),
        "no other programs": fails(os.execv, sys.executable, [sys.executable]),
        "a pid namespace of its own": os.getpid() == 1 and os.getppid() == 0,
        "no /proc": not os.path.exists("/proc/self"),
        "no home folders": not any(os.listdir(path) for path in ("/home", "/var", "/run") if os.path.exists(path)),
        "a read-only system": all(fails(open, path, "w") for path in ("/x", "/usr/x", "/headrace/x", "/dev/x")),
        "a /tmp of its own": os.listdir("/tmp") == ["room"],
        "no new namespaces": libc.unshare(0x10000000) == -1,
        "no capabilities": not capabilities(libc),
        "no way to new privileges": libc.prctl(39, 0, 0, 0, 0) == 1,
        "no core dumps": libc.prctl(3, 0, 0, 0, 0) == 0 and libc.prctl(4, 1, 0, 0, 0) == -1,
        "devices that cannot be touched": all(fails(os.utime, f"/dev/{name}") for name in os.listdir("/dev")),
        "devices that can be written": open("/dev/null", "w").write("x") == 1,
    }
"""
"""Each is True where the sandbox is as it should be."""


def check(slot: Slot) -> None:
    """Starts the sandbox and looks around in it; raises ConfigError naming what is not as it should be."""
    try:
        slot.start()
        with sealed(text_of(Program(_LOOK, "look"))) as program:
            outcome = slot.run(program, encode([]).encode())
    except SandboxError as error:
        raise ConfigError(f"there is no sandbox: {error}. {WAYS_OUT}") from error
    if not outcome.is_clean:
        slot.kill()
        raise ConfigError(f"the sandbox does not work: {outcome.notes or outcome}. {WAYS_OUT}")
    found: dict[str, object] = dict(json.loads(outcome.output)["dict"])
    missing = [what for what, is_so in found.items() if is_so is not True]
    if missing:
        slot.kill()
        raise ConfigError(f"the sandbox does not isolate: it lacks {', '.join(missing)}. {WAYS_OUT}")
