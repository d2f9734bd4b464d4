"""The end of a service's log, as an error of the run quotes it."""

import json
from pathlib import Path

from headrace.supervisor.process import log_tail

SHARED = {"level": "info", "timestamp": "2026-01-01T00:00:00Z", "run_id": "r", "service": "trainer", "instance": "0"}


def line(**fields: object) -> str:
    return json.dumps(fields | SHARED)


def test_a_structured_line_is_shown_in_words_and_any_other_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "trainer.log"
    log.write_text(
        "\n".join(
            [
                "of a library",
                line(event="loaded", step=7, logger_name="trainer"),
                line(event="stopped", error="RUN/journal/000001: a record is damaged"),
                line(event="failed", exception="Traceback ...\n  File ...\nValueError: 3"),
                line(event="waiting", waiting_for="a batch"),
                line(event="waiting", waiting_for="a batch"),
                '{"neither": "an event"}',
                "[1, 2]",
            ]
        )
    )
    assert log_tail(log).splitlines() == [
        "of a library",
        "loaded step=7",
        "stopped: RUN/journal/000001: a record is damaged",
        "failed: ValueError: 3",
        "waiting waiting_for=a batch (2 times)",
        '{"neither": "an event"}',
        "[1, 2]",
    ]
