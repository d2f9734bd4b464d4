"""Which addresses may be called, and how a URL is read."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.reward.endpoint.addresses import why_forbidden
from headrace.services.reward.endpoint.target import read_target
from headrace.wire.errors import ConfigError


def kind(text: str, *, is_listed: bool = False, is_literal: bool = False) -> str | None:
    return why_forbidden(ip_address(text), is_listed=is_listed, is_literal=is_literal)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_whatever_form_leads_to_an_address_is_judged_as_that_address(address: IPv4Address) -> None:
    alone = kind(str(address))
    for form in (0xFFFF << 32 | int(address), 0x64FF9B << 96 | int(address), 0x2002 << 112 | int(address) << 80):
        assert kind(str(IPv6Address(form))) == alone
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        assert alone is not None


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_may_be_called(text: str) -> None:
    assert kind(text) is None


def test_a_listed_host_may_be_private_and_a_listed_address_even_link_local() -> None:
    assert kind("10.0.0.1", is_listed=True) is None
    assert kind("127.0.0.1", is_listed=True) is None
    assert kind("fd00::1", is_listed=True) is None
    assert kind("169.254.169.254", is_listed=True) == "a metadata service's"
    assert kind("169.254.169.254", is_listed=True, is_literal=True) is None
    for never in ("0.0.0.0", "224.0.0.1", "::", "ff02::1", "240.0.0.1", "2001:0:1::1"):
        assert kind(never, is_listed=True, is_literal=True) is not None


@pytest.mark.parametrize(
    "text",
    ["169.254.169.254", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe"],
)
def test_no_listed_name_may_come_to_stand_for_a_metadata_service(text: str) -> None:
    assert kind(text, is_listed=True) in ("a metadata service's", "a link-local")
    assert kind(text, is_listed=True, is_literal=True) is None


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://API.Example.com:443/v1/", "https://api.example.com/v1"),
        ("http://judge:8000", "http://judge:8000"),
        ("http://[2606:4700:0::1111]:80/v1", "http://[2606:4700::1111]/v1"),
        ("http://my_judge.default.svc", "http://my_judge.default.svc"),
        ("http://xn--bcher-kva.example", "http://xn--bcher-kva.example"),
    ],
)
def test_a_url_has_one_form(url: str, form: str) -> None:
    assert read_target(url, (), "judge").url == form


@given(st.text(max_size=40))
def test_no_host_but_a_plain_name_or_address_gets_through(text: str) -> None:
    try:
        target = read_target(f"http://{text}", (), "judge")
    except ConfigError:
        return
    assert target.host.isascii() and target.host.rstrip(".") == target.host
    assert target.address is not None or not target.host.rpartition(".")[2].isdigit()
