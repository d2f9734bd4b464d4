"""The command line in this process: most verbs take less of a CPU than a new process's imports."""

import io
import json
import signal
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from headrace.cli.app import run


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    complaint: str


def ended(*words: object) -> Ended:
    """Runs `headrace WORDS` to its end."""
    before = signal.getsignal(signal.SIGTERM)
    out, complaint = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(complaint):
            status = run([str(word) for word in words])
    finally:
        signal.signal(signal.SIGTERM, before)
    return Ended(status, out.getvalue(), complaint.getvalue())


def said(*words: object, status: int = 0) -> str:
    """The output of `headrace WORDS`, or its complaint if it is to end with another `status` than 0."""
    found = ended(*words)
    assert found.status == status, found.out + found.complaint
    return found.complaint if status else found.out


def result(*words: object) -> Any:
    """The JSON line of `headrace WORDS --json`."""
    return json.loads(said(*words, "--json").splitlines()[-1])
