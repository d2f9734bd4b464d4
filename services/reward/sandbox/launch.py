"""Between the service and bubblewrap, as a script of its own: leaves root behind, then becomes bubblewrap.

    python -I -S launch.py '{"uid": 64000, "stage": ["/root/python"], "argv": ["bwrap", ...]}'

Where the service runs as root, the sandbox gets an unprivileged uid of its own on the host as well: root is exempt from
RLIMIT_NPROC. That uid may be unable to reach a Python that lies in root's home; so folders of `stage` are first mounted
at /tmp/N of a private mount namespace, and `{stage-N}` in argv is put in their place. Only the standard library.
"""

import ctypes
import json
import os
import resource
import sys

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_NOSUID_NODEV = 2 | 4


def main(text: str) -> None:
    """Does not return. Leaves with a message if it cannot become unprivileged."""
    plan = json.loads(text)
    folders: list[str] = plan["stage"]
    if os.geteuid() == 0:
        folders = _stage(folders)
        _drop(plan["uid"])
    _be_first_to_die()
    os.chdir("/")
    argv = [_replace(word, folders) for word in plan["argv"]]
    os.execv(argv[0], argv)


def _stage(folders: list[str]) -> list[str]:
    """Where the folders can be found by anyone; as they are where this root may not mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None):
        return folders
    held = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]  # They may lie in /tmp themselves.
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", _NOSUID_NODEV, b"mode=0755"):
        return folders
    staged = [f"/tmp/{number}" for number in range(len(folders))]
    for fd, target in zip(held, staged, strict=True):
        os.mkdir(target)
        if libc.mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, _MS_BIND | _MS_REC, None):
            sys.exit(f"cannot mount {target}: {os.strerror(ctypes.get_errno())}")
        os.close(fd)
    return staged


def _drop(uid: int) -> None:
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        sys.exit(f"cannot become uid {uid}: {error}")


def _be_first_to_die() -> None:
    """Makes the kernel kill this process first when the machine's memory runs out, and without a core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # Then the kernel chooses by size alone.
        return


def _replace(word: str, folders: list[str]) -> str:
    for number, folder in enumerate(folders):
        if word == f"{{stage-{number}}}":
            return folder
    return word


if __name__ == "__main__":
    main(sys.argv[1])
