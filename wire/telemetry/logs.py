"""Logs and trace ids. A log line is a constant event name plus fields: `log.info("weights_committed", version=7)`."""

import contextlib
import logging
import re
import secrets
import sys
from typing import cast

import structlog

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class _LossyLogger(structlog.WriteLogger):
    """Writes to stderr. A full disk loses the line and does not fail the caller."""

    def __init__(self, *_: object) -> None:
        super().__init__(sys.stderr)

    def msg(self, message: str) -> None:
        """Writes one line, if the log takes it."""
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure_logging(service: str, run_id: str, instance: str = "0") -> None:
    """JSON lines to stderr, each with run id and service; the standard library's loggers end there too."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=_LossyLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(run_id=run_id, service=service, instance=instance)
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry `logger_name=name`."""
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger(logger_name=name))


def new_traceparent(*, sampled: bool = True) -> str:
    """A W3C traceparent that begins a trace: the life of one group. `sampled`: whether its spans are recorded."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{sampled:02x}"


def bind_trace(group_id: str, traceparent: str) -> None:
    """Adds the group and its trace to every later log line of this task."""
    structlog.contextvars.bind_contextvars(group_id=group_id, trace_id=trace_id(traceparent))


def trace_id(traceparent: str) -> str:
    """The 32 hex digits that all spans of a trace share; empty for no trace."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match.group(1) if match else ""
