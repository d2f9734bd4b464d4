"""Programs that want a reward without an answer, or harm. `act()` is what each does; `{...}` are things of the host.

A program that gets what it should not get says so by `escaped`. What they print or return otherwise is no right answer.
"""

FRAME = """
import os, sys
def escaped(what=""):
    try:
        os.write(1, b"ESCAPED " + str(what)[:200].encode() + b"\\n")
        os.write(2, b"ESCAPED " + str(what)[:200].encode() + b"\\n")
    except OSError:
        pass
{act}
def solve(n):
    result = act()
    return -1 if result is None else result
if __name__ == "__main__":
    result = act()
    print(-1 if result is None else result)
"""

SYSCALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
"""

ACTS = {
    "fork bomb": """
def act():
    while True:
        try:
            os.fork()
            escaped("forked")
        except OSError:
            pass
""",
    "thread bomb": """
import threading, time
def act():
    started = []
    for _ in range(10000):
        thread = threading.Thread(target=time.sleep, args=(30,), daemon=True)
        thread.start()
        started.append(thread)
        if len(started) > 100:
            escaped("over a hundred threads")
""",
    "memory": """
def act():
    held = []
    while True:
        held.append(bytearray(64 << 20))
        if len(held) > 10:
            escaped("640 MiB")
            return
""",
    "memory in files": SYSCALL
    + """
def act():
    if libc.syscall(319, b"x", 0) >= 0 or libc.syscall(447, 0) >= 0:
        escaped("memfd")
    if libc.syscall(29, 0, 1 << 20, 0o1600) >= 0:
        escaped("shared memory")
""",
    "disk": """
def act():
    written = 0
    for number in range(1000):
        try:
            with open(f"/tmp/{{number}}", "wb") as file:
                while True:
                    written += file.write(bytes(1 << 20))
                    file.flush()
                    if written > 32 << 20:
                        escaped("32 MiB")
                        return
        except OSError:
            pass
""",
    "network": """
import socket
def act():
    for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_UNIX, "\\0{abstract}")):
        try:
            with socket.socket(family) as link:
                link.settimeout(0.5)
                link.connect(address)
                escaped(address)
        except OSError:
            pass
""",
    "names": """
import socket
def act():
    socket.getaddrinfo("example.com", 443)
    escaped("resolved")
""",
    "environment": """
import ctypes
def act():
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = ("SECRET", "HEADRACE_SECRET", "PATH", "HOME", "PYTHONPATH", "PWD", "PYTHONHASHSEED")
    if os.environ or any(getenv(name.encode()) for name in names):
        escaped(dict(os.environ))
""",
    "files": """
def act():
    for path in ("/etc/shadow", "/etc/passwd", "/etc/hostname", "/root/.bashrc", "{file}", "/var/log", "/home"):
        try:
            escaped((path, open(path).read() if not path.endswith(("log", "home")) else os.listdir(path)))
        except OSError:
            pass
""",
    "proc": """
def act():
    for path in ("1/environ", "self/environ", "{pid}/environ", "self/mem", "1/root/etc/passwd"):
        try:
            escaped(open("/proc/" + path, "rb").read(100))
        except OSError:
            pass
    if os.path.exists("/proc/version"):
        escaped("there is a /proc")
""",
    "kill the parent": """
import signal
def act():
    if os.getppid() > 0:
        escaped("has a parent")
    for pid in (os.getppid(), -1, 0, 2, 3):
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            try:
                os.kill(pid, number)
            except OSError:
                pass
    try:
        os.killpg(0, signal.SIGKILL)
    except OSError:
        pass
""",
    "kill all pids": """
import signal
def act():
    for pid in (*range(2, 5000), {pid}):
        try:
            os.kill(pid, signal.SIGKILL)
            escaped(pid)
        except OSError:
            pass
""",
    "write the verdict": """
import json
def act():
    words = ["1", "1.0", "passed", "true", json.dumps({{"passed": 1, "tests": 1, "value": 1.0, "ending": "exit"}})]
    for fd in range(3, 256):
        for word in words:
            try:
                os.write(fd, word.encode())
            except OSError:
                pass
""",
    "write the reply": """
import struct, ctypes
def act():
    reply = struct.pack("<cidd", b"x", 0, 0.0, 0.0)
    libc = ctypes.CDLL(None)
    for fd in range(3, 256):
        if libc.send(fd, reply, len(reply), 0) >= 0:
            escaped(fd)
""",
    "read all descriptors": """
def act():
    for fd in range(4, 1024):
        try:
            escaped((fd, os.read(fd, 100)))
        except OSError:
            pass
""",
    "daemon": """
import time
def act():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            escaped("daemon")
            time.sleep(60)
""",
    "symbolic links": """
def act():
    for number, target in enumerate(("/etc/passwd", "{file}", "/proc/self/root", "../../../../etc/passwd", "/dev/mem")):
        os.symlink(target, f"/tmp/link{{number}}")
        try:
            escaped(open(f"/tmp/link{{number}}").read(100))
        except OSError:
            pass
""",
    "the way up": SYSCALL
    + """
def act():
    os.chdir("/")
    if libc.chroot(b"/tmp") == 0 or libc.syscall(304, -100, 0, 0) >= 0:
        escaped("chroot or handle")
    for path in ("../etc/passwd", "../../etc/passwd", "/oldroot", "/newroot", "/tmp/../../etc/passwd"):
        if os.path.exists(path):
            escaped(path)
""",
    "ptrace": SYSCALL
    + """
def act():
    for request in (0, 16, 0x4206):
        for pid in (1, 2, 3, {pid}):
            if libc.ptrace(request, pid, 0, 0) >= 0:
                escaped((request, pid))
    if libc.process_vm_readv({pid}, None, 0, None, 0, 0) >= 0:
        escaped("process_vm_readv")
""",
    "endless output": """
def act():
    while True:
        try:
            os.write(1, b"1" * 65536)
        except OSError:
            pass
""",
    "endless prints": """
def act():
    while True:
        print("1" * 1000)
""",
    "patched checker": """
import json, gc
def act():
    for name, module in list(sys.modules.items()):
        if "sandbox" in name or name in ("json", "__main__"):
            for key in list(vars(module)):
                if callable(vars(module)[key]):
                    setattr(module, key, lambda *a, **k: "1")
""",
}
