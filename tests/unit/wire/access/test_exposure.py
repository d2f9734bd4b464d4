"""A service says what of its traffic others can read, and on one machine there is nothing to say."""

from pathlib import Path

import pytest

from headrace.wire.access.exposure import collectives_leave, leaves_in_the_clear, not_encrypted
from headrace.wire.config.settings import ServiceSettings


def settings(host: str, url: str = "", tls: str = "") -> ServiceSettings:
    return ServiceSettings.model_validate({"host": host, "broker": {"url": url}, "tls": Path(tls) if tls else None})


def test_on_one_machine_no_traffic_is_exposed() -> None:
    for url in ("", "unix:///run/s", "redis://127.0.0.1:6379/0", "redis://user:word@localhost/0"):
        assert not_encrypted(settings("127.0.0.1", url)) == []
    assert collectives_leave(settings("127.0.0.1"), nodes=1, weights=True) == ""


def test_unencrypted_traffic_to_other_machines_is_named() -> None:
    both = ["gRPC (HEADRACE_TLS encrypts it)", "the broker (a rediss:// URL encrypts it)"]
    assert not_encrypted(settings("0.0.0.0", "redis://:word@valkey:6379/0")) == both
    assert not_encrypted(settings("0.0.0.0", "rediss://valkey:6379/0")) == both[:1]
    assert not_encrypted(settings("0.0.0.0", "redis://valkey", "/tls")) == both[1:]
    assert not_encrypted(settings("0.0.0.0", "rediss://valkey", "/tls")) == []


@pytest.mark.parametrize(
    ("nodes", "weights", "carried"),
    [
        (1, True, "weights to the replicas"),
        (1, False, ""),
        (2, True, "gradients between 2 machines, weights to the replicas"),
        (2, False, "gradients between 2 machines"),
    ],
)
def test_collective_traffic_is_named_even_with_certificates(nodes: int, weights: bool, carried: str) -> None:
    assert collectives_leave(settings("0.0.0.0", tls="/tls"), nodes=nodes, weights=weights) == carried


def test_an_address_beyond_loopback_counts_as_another_machine() -> None:
    assert leaves_in_the_clear("redis+sentinel://10.0.0.4:26379,10.0.0.5:26379/name") and not leaves_in_the_clear(
        "rediss+sentinel://10.0.0.4/name"
    )
    assert leaves_in_the_clear("redis://10.0.0.4:6379/0") and not leaves_in_the_clear("redis://[::1]:6379/0")
