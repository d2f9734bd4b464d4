"""The system calls that a program under test may not make, as a seccomp filter (classic BPF).

A deny-list: it takes away what untrusted Python does not need and what has been a way out before. Calls that are denied
fail with EPERM. One test is one process: it may start threads, but no process, so its memory limit is the whole test's.
"""

import ctypes
import platform
import struct
from collections.abc import Mapping, Sequence

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # Other processes, and new ones.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # The network, and all that outlives a process or takes memory that its limit does not count.
    "socket": (41, 198),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    # A lower priority than others': a test that waits for a CPU is not charged for it.
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # Large pieces of the kernel, often at fault.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    # The machine itself; all of it needs capabilities that no process in here has.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
}
"""Name -> its number on x86_64, on aarch64."""
_CLONE, _CLONE3 = (56, 220), 435
_CLONE_THREAD = 0x00010000
_PRCTL, _PR_SET_DUMPABLE = (157, 167), 4
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # Offsets in struct seccomp_data; little-endian.
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER, _NO_MODE = 22, 38, 2, 99


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def denied(machine: str = platform.machine()) -> dict[str, int]:
    """Name -> number on this machine, of the calls that always fail. Raises OSError where it is not known."""
    if machine not in _ARCHITECTURES:
        raise OSError(f"no system call numbers are known for {machine}; there are {', '.join(_ARCHITECTURES)}")
    column = list(_ARCHITECTURES).index(machine)
    return {name: number for name, numbers in _DENIED.items() if (number := numbers[column]) is not None}


def make_filter(machine: str = platform.machine()) -> bytes:
    """The filter as an array of struct sock_filter. Raises OSError for a machine that is not known."""
    numbers = sorted(denied(machine).values())
    column = list(_ARCHITECTURES).index(machine)
    # The ends come last: allow, kill, EPERM, ENOSYS, and the looks at the flags of `clone` and the option of `prctl`.
    steps: list[tuple[int, int, str | int, str | int]] = [
        (_LOAD, _ARCHITECTURE, 0, 0),
        (_EQUAL, _ARCHITECTURES[machine], 0, "kill"),
        (_LOAD, _NUMBER, 0, 0),
        (_AT_LEAST, _X32, "kill", 0),
        (_EQUAL, _CLONE[column], "clone", 0),
        (_EQUAL, _PRCTL[column], "prctl", 0),
        (_EQUAL, _CLONE3, "enosys", 0),  # Its flags lie in memory, out of sight; the C library falls back to clone.
        *((_EQUAL, number, "eperm", 0) for number in numbers),
    ]
    ends = {
        "allow": len(steps),
        "kill": len(steps) + 1,
        "eperm": len(steps) + 2,
        "enosys": len(steps) + 3,
        "clone": len(steps) + 4,
        "prctl": len(steps) + 8,
    }
    steps += [
        (_RETURN, _ALLOW, 0, 0),
        (_RETURN, _KILL, 0, 0),
        (_RETURN, _EPERM, 0, 0),
        (_RETURN, _ENOSYS, 0, 0),
        (_LOAD, _FIRST_ARGUMENT, 0, 0),
        (_ANY_BIT, _CLONE_THREAD, 0, 1),
        (_RETURN, _ALLOW, 0, 0),
        (_RETURN, _EPERM, 0, 0),
        (_LOAD, _FIRST_ARGUMENT, 0, 0),
        (_EQUAL, _PR_SET_DUMPABLE, 0, 1),
        (_RETURN, _EPERM, 0, 0),
        (_RETURN, _ALLOW, 0, 0),
    ]
    return _assemble(steps, ends)


def _assemble(steps: Sequence[tuple[int, int, str | int, str | int]], ends: Mapping[str, int]) -> bytes:
    def jump(at: int, to: str | int) -> int:
        return ends[to] - at - 1 if isinstance(to, str) else to

    return b"".join(
        struct.pack("<HBBI", code, jump(at, yes), jump(at, no), value)
        for at, (code, value, yes, no) in enumerate(steps)
    )


class Filter:
    """A filter that is ready to be installed."""

    def __init__(self, libc: ctypes.CDLL, program: bytes) -> None:
        self._prctl = libc.prctl
        self._program = _Program(len(program) // 8, program)
        self._pointer = ctypes.byref(self._program)

    def install(self) -> None:
        """Puts this thread, and all it starts, under the filter for good. Raises OSError."""
        if self._prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        if self._prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._pointer, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")

    def rehearse(self) -> None:
        """The same calls, but such that they do nothing: in a mode that does not exist."""
        self._prctl(_PR_SET_SECCOMP, _NO_MODE, self._pointer, 0, 0)
