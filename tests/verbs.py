"""The command line in this process: most verbs take less of a CPU than a new process's imports."""

import io
import json
import signal
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from headrace.cli.app import run


def said(*words: object, status: int = 0) -> str:
    """The output of `headrace WORDS`, or its complaint if it is to end with another `status` than 0."""
    before = signal.getsignal(signal.SIGTERM)
    out, complaint = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(complaint):
            found = run([str(word) for word in words])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found == status, out.getvalue() + complaint.getvalue()
    return complaint.getvalue() if status else out.getvalue()


def result(*words: object) -> Any:
    """The JSON line of `headrace WORDS --json`."""
    return json.loads(said(*words, "--json").splitlines()[-1])
