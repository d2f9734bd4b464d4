"""The orchestrator shows when the broker's certificate expires, and goes on where that cannot be seen."""

from structlog.testing import capture_logs

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.run import _look_at_certificate
from headrace.wire.errors import TransientError
from headrace.wire.streams.memory import MemoryBroker


class Encrypted(MemoryBroker):
    """Shows a certificate, or takes no connection."""

    expires: float | None = 1_900_000_000.0

    async def certificate_expires(self) -> float:
        if self.expires is None:
            raise TransientError("no new connection to the broker: certificate has expired")
        return self.expires


def shown() -> float:
    (sample,) = next(iter(metrics.BROKER_CERTIFICATE.collect())).samples
    return float(sample.value)


async def test_the_expiry_is_shown_and_one_that_cannot_be_seen_is_named_and_changes_nothing() -> None:
    broker = Encrypted()
    await _look_at_certificate(broker)
    assert shown() == 1_900_000_000.0
    broker.expires = None
    with capture_logs() as logs:
        await _look_at_certificate(broker)
    (line,) = logs
    assert line["event"] == "broker_takes_no_connection" and "certificate has expired" in line["error"]
    assert shown() == 1_900_000_000.0
    await _look_at_certificate(MemoryBroker())
    assert shown() == 0
