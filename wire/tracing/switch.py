"""Tracing of one process: turned on from its settings, and off at its end."""

from importlib.util import find_spec

from headrace.wire.config.settings import TracingTable
from headrace.wire.errors import ConfigError
from headrace.wire.tracing.spans import STATE

_PACKAGES = {
    "http": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}


def check_ready(table: TracingTable) -> dict[str, str]:
    """The headers that go with every export. Raises ConfigError if tracing is on and could not work."""
    if not table.endpoint:
        return {}
    for name in ("opentelemetry.sdk", _PACKAGES[table.protocol]):
        try:
            found = find_spec(name) is not None
        except ModuleNotFoundError:  # A package above it is not there.
            found = False
        if not found:
            raise ConfigError(
                f"[tracing] endpoint = {table.endpoint!r} needs the package {name}: pip install 'headrace[tracing]', "
                "or set endpoint to an empty text"
            )
    return _headers(table)


def _headers(table: TracingTable) -> dict[str, str]:
    if not table.headers_file.parts:
        return {}
    place = f"[tracing] headers_file = {str(table.headers_file)!r}"
    try:
        text = table.headers_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: {error}; write one `name: value` a line into it") from error
    headers = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if line.strip() and not (name and colon and name.isascii() and value.isascii()):
            raise ConfigError(f"{place}: line {number} is not of the form `name: value`")
        if name:
            headers[name.lower()] = value
    return headers


def start(table: TracingTable, *, service: str, run_id: str, instance: str) -> None:
    """Begins to record spans, if the table names an endpoint. Raises ConfigError."""
    if not table.endpoint:
        return
    headers = check_ready(table)
    resource = {
        "service.name": f"headrace-{service}",
        "service.namespace": "headrace",
        "service.instance.id": f"{run_id}/{service}-{instance}",
        "headrace.run_id": run_id,
    }

    from headrace.wire.tracing.export import Outbox, open_exporter
    from headrace.wire.tracing.sdk import Tracer

    STATE.ratio = table.sample_ratio
    STATE.tracer = Tracer(Outbox(lambda: open_exporter(table, headers)), resource)


def stop() -> None:
    """Sends what is left and ends tracing; takes two seconds at the most."""
    tracer, STATE.tracer = STATE.tracer, None
    if tracer is not None:
        tracer.stop()
