"""The most memory that a process held since the last look, on its device and on the host."""

import threading
from pathlib import Path

import torch

from headrace.services.trainer.throughput.peak_keys import DEVICE, HOST, RESERVED

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"
"""proc_pid_clear_refs(5): resets the peak resident set size, since Linux 4.0."""
_LOOK_S = 0.1


class MemoryPeaks:
    """Peaks from one look to the next: what lies between two steps counts for the second of them."""

    def __init__(self, device: torch.device, *, process: Path = _PROCESS) -> None:
        """Starts the measurement: the first `take` covers the time from now on."""
        self._device = device
        self._host = _HostPeak(process)
        self.take()

    def take(self) -> dict[str, float]:
        """Returns bytes by key of metrics.jsonl, the same keys on every rank, 0 = unknown; then starts anew."""
        found = {HOST: float(self._host.take())}
        if self._device.type == "cuda":
            found[DEVICE] = float(torch.cuda.max_memory_allocated(self._device))
            found[RESERVED] = float(torch.cuda.max_memory_reserved(self._device))
            torch.cuda.reset_peak_memory_stats(self._device)
        return found


class _HostPeak:
    """Peak of host memory, by the kernel's own mark, or by ten samples a second if that cannot be reset (gVisor).

    0 without such a process file system.
    """

    def __init__(self, process: Path) -> None:
        self._process = process
        self._most = 0
        self._lock = threading.Lock()
        self._sampled = not self._reset() and self._read("VmRSS:") > 0
        if self._sampled:
            threading.Thread(target=self._sample, daemon=True, name="host-memory").start()

    def take(self) -> int:
        if not self._sampled:
            found = self._read("VmHWM:")
            self._reset()
            return found
        now = self._read("VmRSS:")
        with self._lock:
            found, self._most = max(self._most, now), 0
        return found

    def _sample(self) -> None:
        pause = threading.Event()
        while not pause.wait(_LOOK_S):
            now = self._read("VmRSS:")
            with self._lock:
                self._most = max(self._most, now)

    def _reset(self) -> bool:
        try:
            (self._process / "clear_refs").write_text(_RESET_PEAK)
        except OSError:
            return False
        return True

    def _read(self, key: str) -> int:
        """Bytes of a line such as `VmHWM:      2192 kB`; 0 without it."""
        try:
            lines = (self._process / "status").read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
