"""CPUs: how many this process may use, and how long a process has waited for one."""

import os
from contextlib import suppress
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_OWN = Path("/proc/self/schedstat")


def available() -> float:
    """CPUs that this process may use, by its affinity and, where it can be read, its control group's quota."""
    found = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text().split()
        found = min(found, int(quota) / int(period))  # "max" is not a number.
    return found


def tells_waiting() -> bool:
    """Whether the kernel counts waiting (CONFIG_SCHED_INFO); a process that runs has been on a CPU."""
    try:
        return int(_OWN.read_text().split()[0]) > 0
    except (OSError, ValueError):
        return False


def waited_s(pidfd: int) -> float:
    """Seconds for which a process was ready to run and got no CPU: of its threads, the one that waited longest.

    The process may have ended, if it has not been reaped. 0 where the kernel does not report it.
    """
    try:
        status = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        pid = next(line.split()[1] for line in status.splitlines() if line.startswith("Pid:"))
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (OSError, StopIteration):
        return 0.0
    longest = 0
    for task in tasks:
        with suppress(OSError, ValueError, IndexError):  # It may just have ended.
            longest = max(longest, int((task / "schedstat").read_text().split()[1]))
    return longest / 1e9
