"""Programs that try to look right: what they change, and what they return, in the interpreter they run in; and more.

See `hostile.py`.
"""

from tests.integration.reward.sandbox.hostile import SYSCALL

TRICKS = {
    "patched builtins": """
import builtins, json, io
def act():
    builtins.print = builtins.repr = builtins.len = builtins.sorted = lambda *a, **k: 1
    json.dumps = json.loads = lambda *a, **k: "1"
    builtins.open = io.open = None
    sys.stdout = sys.__stdout__ = io.StringIO()
    os._exit_ = os._exit
""",
    "equal to all": """
class Everything(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __lt__(self, other): return True
    def __abs__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __bool__(self): return True
    def __str__(self): return "1"
    __repr__ = __str__
def act():
    return Everything(-1)
""",
    "no plain value": """
class Everything:
    def __eq__(self, other): return True
    def __repr__(self): return "10"
    def __reduce__(self): return (escaped, ("reduced",))
    def __getattr__(self, name): return lambda *a: "1"
def act():
    return Everything()
""",
    "not a number": """
def act():
    return float("nan")
""",
    "infinite": """
def act():
    return float("inf")
""",
    "sys.exit(0)": """
def act():
    sys.exit(0)
""",
    "os._exit(0)": """
def act():
    os._exit(0)
""",
    "interrupted": """
def act():
    raise KeyboardInterrupt
""",
    "stops itself": """
import signal
def act():
    for number in (signal.SIGSTOP, signal.SIGTSTP):
        os.kill(os.getpid(), number)
        os.kill(0, number)
""",
    "closed descriptors": """
def act():
    os.closerange(0, 256)
""",
    "deaf to signals": """
import signal
def act():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        pass
""",
    "busy loop": """
def act():
    while True:
        pass
""",
    "busy loop in C": """
import re
def act():
    re.match(r"(a+)+$", "a" * 64 + "b")
""",
    "asleep": """
import time
def act():
    time.sleep(3600)
""",
    "asleep in a thread": """
import threading, time
def act():
    threading.Thread(target=time.sleep, args=(3600,)).start()
""",
    "deep recursion": """
def act():
    sys.setrecursionlimit(10 ** 9)
    def down(n):
        return down(n + 1) + sorted([n], key=lambda k: down(k))[0]
    down(0)
""",
    "segmentation fault": """
import ctypes
def act():
    ctypes.string_at(0)
""",
    "namespaces and mounts": SYSCALL
    + """
def act():
    for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x02000000):
        if libc.unshare(flag) == 0:
            escaped(hex(flag))
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 or libc.umount2(b"/tmp", 2) == 0:
        escaped("mount")
""",
    "raw clones": SYSCALL
    + """
def act():
    for number, flags in ((56, 17), (56, 0x10000000 | 17), (57, 0), (58, 0), (435, 0)):
        pid = libc.syscall(number, flags, 0, 0, 0, 0)
        if pid >= 0:
            escaped((number, pid))
    for number in (425, 298, 321, 323, 250, 272, 308):
        if libc.syscall(number, 0, 0, 0, 0, 0) >= 0:
            escaped(number)
""",
    "other programs": """
import subprocess
def act():
    for command in (["/bin/sh", "-c", "id"], [sys.executable, "-c", "print(1)"], ["/usr/bin/env"]):
        try:
            escaped(subprocess.run(command, capture_output=True).stdout)
        except OSError:
            pass
    try:
        os.execv("/usr/bin/env", ["env"])
    except OSError:
        pass
""",
    "huge argv": """
def act():
    os.execv(sys.executable, ["x" * (1 << 20)] * 200)
""",
    "poisoned places": """
def act():
    for path in ("/", "/usr", "/usr/lib", "/headrace", "/dev", "/tmp", os.path.dirname(os.__file__), "/packages"):
        try:
            name = path + "/sitecustomize.py"
            found = os.path.exists(name)
            open(name, "w").write("import os; os._exit(0)")
            if found or path != "/tmp":
                escaped(path)
        except OSError:
            pass
    os.chmod("/tmp", 0o777)
    os.utime("/tmp", (1, 1))
""",
    "at the end": """
import atexit, threading
def act():
    atexit.register(lambda: (os.write(1, b"1\\n"), os._exit(0)))
    threading._register_atexit(lambda: os.write(1, b"1\\n"))
    class Last:
        def __del__(self): os._exit(0)
    global last
    last = Last()
    sys.excepthook = sys.unraisablehook = lambda *a: os._exit(0)
    raise SystemExit(0)
""",
    "expected outputs in memory": """
import gc
def act():
    texts = [text for text in gc.get_objects() if isinstance(text, (dict, list, tuple))]
    frame = sys._getframe()
    while frame:
        texts.append(frame.f_locals)
        texts.append(frame.f_globals)
        frame = frame.f_back
    wanted = "-".join(("the", "answer"))
    if any(wanted + "-" in value for text in texts[:20000] for value in list(text)[:50] if isinstance(value, str)):
        escaped("found it")
""",
    "raised limits": """
import resource
def act():
    for kind in range(16):
        try:
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if kind not in (resource.RLIMIT_STACK, resource.RLIMIT_RSS, resource.RLIMIT_DATA, 10, 11, 15, 13, 14, 12):
                escaped(kind)
        except (OSError, ValueError):
            pass
    resource.prlimit(1, resource.RLIMIT_AS, (1, 1))
""",
    "a value that takes for ever": """
def act():
    return {{number * ((1 << 61) - 1) for number in range(2000)}}
""",
    "a deep value": """
def act():
    value = []
    for _ in range(100000):
        value = [value]
    return value
""",
    "a value that holds itself": """
def act():
    value = []
    value.append(value)
    return value
""",
    "a value in pieces": """
def act():
    os.write(3, b"1")
    os._exit(0)
""",
    "tags of its own": """
def act():
    os.write(3, b'{{"dict": [[{{"set": [1, 1]}}, 2]], "x": 1}}')
    os._exit(0)
""",
    "many digits": """
def act():
    return 10 ** 5_000_000
""",
    "last in line": SYSCALL
    + """
def act():
    for call in (
        lambda: os.nice(19),
        lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)),
        lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    ):
        try:
            call()
            escaped("its own priority")
        except OSError:
            pass
    while True:
        pass
""",
    "busy threads": """
import hashlib, threading
def act():
    data = bytes(1 << 22)
    def work():
        while True:
            hashlib.sha256(data)
    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    work()
""",
    "devices of the machine": """
def act():
    for name in os.listdir("/dev"):
        for touch in (os.utime, lambda path: os.utime(path, (1, 1)), lambda path: os.chmod(path, 0o666)):
            try:
                touch("/dev/" + name)
                escaped(name)
            except OSError:
                pass
""",
    "core dumps": SYSCALL
    + """
def act():
    if libc.prctl(4, 1, 0, 0, 0) == 0 or libc.prctl(3, 0, 0, 0, 0) != 0:
        escaped("dumpable")
    libc.abort()
""",
    "asynchronous input and output": SYSCALL
    + """
def act():
    context = ctypes.c_ulong(0)
    if libc.syscall(206, 8, ctypes.byref(context)) == 0:
        escaped("io_setup")
    for number in (457, 458):
        libc.syscall(number, 0, 0, 0, 0)
        if ctypes.get_errno() != 1:
            escaped(number)
""",
    "no Python at all": "}}}}",
    "too deep for the compiler": "x = " + "(" * 5000 + ")" * 5000,
    "too large for the compiler": "x = 9 ** 9 ** 9 ** 9\n",
}
