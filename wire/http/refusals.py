"""Refused HTTP requests are counted, and logged at times: a flood of them must not fill the disk."""

import time

from headrace.wire.telemetry import metrics
from headrace.wire.telemetry.logs import get_logger

log = get_logger("headrace.wire.http")
_QUIET_S = 10.0
"""Between two lines of the log."""
_LONGEST = 200
"""Characters of a line: part of it comes from the caller."""


class _Quiet:
    """Until when nothing is logged, by the monotonic clock."""

    until = 0.0


def note_refusal(reason: str, text: str) -> None:
    """Counts a refused request under its reason, a label of `headrace_http_refused_total`."""
    metrics.HTTP_REFUSED.labels(reason).inc()
    if time.monotonic() >= _Quiet.until:
        _Quiet.until = time.monotonic() + _QUIET_S
        log.warning("http_refused", reason=reason, error=text[:_LONGEST])
