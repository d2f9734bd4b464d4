"""Checks of the machine itself: memory, disk, shared memory, limits."""

import fcntl
import os
import resource
import shutil
import socket
import tempfile
from pathlib import Path

from headrace.doctor.findings import Finding, fail, ok, warn
from headrace.doctor.sizes import model_parameters
from headrace.doctor.wants import Wants

_GIB = 1 << 30
_SHM = Path("/dev/shm")
_CGROUP = Path("/sys/fs/cgroup")


def memory(wants: Wants) -> Finding:
    """Compares free memory with a rough estimate of what trainer and replicas will use."""
    free, total = memory_of_machine()
    said = f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f}"
    need = 2 * _GIB
    if wants.resolved and not wants.cuda:
        parameters = model_parameters(wants.resolved.config.model.path)
        # Weights, gradients and two moments in float32; a copy for each replica and for the snapshot.
        need += parameters * 4 * (5 + wants.resolved.config.rollout.replicas)
        said += f"; trainer and replicas will take about {need / _GIB:.1f}"
    if free < need:
        fix = "end other programs, give the container more memory, or take a smaller model or fewer replicas"
        return (fail if free < _GIB // 2 else warn)("memory", said, fix)
    return ok("memory", said)


def disk(folder: Path, wants: Wants) -> Finding:
    """Compares free disk space with the estimated size of checkpoints and export."""
    place = _existing(folder)
    free = shutil.disk_usage(place).free
    said = f"{free / _GIB:.1f} GiB free in {place}"
    need = 2 * _GIB
    if wants.resolved:
        config = wants.resolved.config
        parameters = model_parameters(config.model.path)
        # A checkpoint: weights and two moments in float32; one more while it is written; and the export.
        need += parameters * 12 * (config.trainer.keep_checkpoints + 1) + parameters * 4
        said += f"; checkpoints and export will take about {need / _GIB:.1f}"
    if free < need:
        fix = "free space, choose another --run-dir, or keep fewer checkpoints (trainer.keep_checkpoints)"
        return (fail if free < _GIB // 2 else warn)("disk", said, fix)
    return ok("disk", said)


def files(folder: Path) -> Finding:
    """Checks what a run directory needs of its file system: writes, locks, renames, unix sockets and fsync."""
    place = _existing(folder)
    fix = f"{place} must be a local, writable file system: choose another --run-dir"
    try:
        with tempfile.TemporaryDirectory(prefix=".headrace-doctor-", dir=place) as name:
            path = Path(name) / "file"
            with path.open("wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fsync(file.fileno())
            path.rename(Path(name) / "renamed")
            with socket.socket(socket.AF_UNIX) as probe:
                # Through the folder's descriptor: a long path does not fit into a socket's name.
                folder_fd = os.open(name, os.O_RDONLY)
                try:
                    probe.bind(f"/proc/self/fd/{folder_fd}/s")
                finally:
                    os.close(folder_fd)
    except OSError as error:
        return fail("files", f"{place}: {error.strerror or error}", fix)
    return ok("files", f"{place}: locks, renames, sockets, fsync")


def shared_memory(wants: Wants) -> Finding:
    """Checks /dev/shm, which NCCL and the processes of an engine use to exchange data."""
    fix = "docker: --shm-size 8g (compose: shm_size); Kubernetes: an emptyDir with medium Memory at /dev/shm"
    if not _SHM.is_dir():
        return (fail if wants.cuda else warn)("shared memory", "there is no /dev/shm", fix)
    free = shutil.disk_usage(_SHM).free
    said = f"{free / _GIB:.2f} GiB free in /dev/shm"
    if free >= _GIB or (not wants.cuda and not wants.sglang and free >= 1 << 20):
        return ok("shared memory", said)
    return (fail if wants.gpus > 1 else warn)("shared memory", f"{said}; NCCL and SGLang want 1 GiB at least", fix)


def limits(wants: Wants) -> Finding:
    """Checks the limits on open files and, with GPUs and InfiniBand, locked memory."""
    opened = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"{_limit(opened[0])} open files"
    if 0 <= opened[0] < 1024:
        return fail("limits", said, "ulimit -n 65536 (docker: --ulimit nofile=65536)")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if wants.cuda and locked != resource.RLIM_INFINITY and Path("/sys/class/infiniband").is_dir():
        fix = "ulimit -l unlimited (docker: --ulimit memlock=-1): NCCL over InfiniBand pins memory"
        return warn("limits", f"{said}, {_limit(locked)} bytes of locked memory", fix)
    return ok("limits", said)


def memory_of_machine() -> tuple[int, int]:
    """Available and total bytes of memory, of the machine or of this container."""
    free, total = _meminfo()
    limit = _number(_CGROUP / "memory.max")
    if limit:
        used = _number(_CGROUP / "memory.current") or 0
        free, total = min(free, limit - used), min(total, limit)
    return free, total


def _meminfo() -> tuple[int, int]:
    """Bytes available without swapping, and total bytes."""
    kib = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        kib[name] = int(rest.split()[0])
    return kib["MemAvailable"] << 10, kib["MemTotal"] << 10


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_dir())


def _number(path: Path) -> int:
    try:
        text = path.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)
