"""Processes whose wall clock a test moves: libfaketime, preloaded.

It moves what libc says of CLOCK_REALTIME: of the broker its stream ids, idle times and the answer to TIME. It does not
move monotonic clocks, as no real step of a clock does, nor times of files, which are the kernel's. Python's
`time.sleep` fails under it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

HOUR_S = 3600
_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class MovedClock:
    """The clock of the processes that are started with `variables`."""

    def __init__(self, file: Path) -> None:
        """`file`: holds the distance.

        Skips the test without libfaketime; where HEADRACE_REQUIRE_FAKETIME=1 it fails.
        """
        if not _LIBRARY.is_file():
            needed = os.environ.get("HEADRACE_REQUIRE_FAKETIME") == "1"
            assert not needed, "HEADRACE_REQUIRE_FAKETIME=1, but there is no libfaketime"
            pytest.skip("there is no libfaketime (Debian: apt install faketime)")
        self.file = file
        self.move(0)

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables of the processes' environment that move their clock."""
        return {
            "LD_PRELOAD": str(_LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def move(self, seconds: int) -> None:
        """Sets the clock so far from the machine's; processes notice within a second of theirs."""
        aside = self.file.with_suffix(".aside")
        aside.write_text(f"{seconds:+d}")
        aside.rename(self.file)
