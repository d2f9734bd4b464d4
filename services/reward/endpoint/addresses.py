"""Which addresses may be called. Pure.

Special blocks are those of the IANA registries (RFC 6890 and its successors); the addresses of metadata services are
the ones that the large clouds document.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_METADATA = {
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
    )
}
_NAT64 = ip_network("64:ff9b::/96")
_TUNNELS = [ip_network(text) for text in ("64:ff9b:1::/48", "2001::/32", "::/96")]
"""Local NAT64, Teredo, IPv4-compatible: the address alone does not determine where a packet goes."""
_PRIVATE = [
    ip_network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "fc00::/7",
        "fec0::/10",
    )
]
_NEVER = {"a multicast", "an unspecified", "a reserved", "a zoned", "a tunnel's"}
_ONLY_WHEN_SPELLED_OUT = {"a link-local", "a metadata service's"}


def why_forbidden(address: Address, *, is_listed: bool, is_literal: bool) -> str | None:
    """What kind of address it is if it must not be called; None if it may be.

    `is_listed`: the config allows the host although it is private; link-local and metadata addresses only if it is
    `is_literal` too, so that no name can come to stand for them.
    """
    kind = _kind(address)
    if kind is None or (is_listed and kind not in _NEVER | _ONLY_WHEN_SPELLED_OUT):
        return None
    return None if is_listed and is_literal and kind in _ONLY_WHEN_SPELLED_OUT else kind


def _kind(address: Address) -> str | None:
    """None = public."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return "a zoned"
        inner = _embedded(address)
        if inner is not None:
            return _kind(inner)
    if address in _METADATA:
        return "a metadata service's"
    for kind, holds in (
        ("an unspecified", address.is_unspecified or address in ip_network("0.0.0.0/8")),
        ("a loopback", address.is_loopback),
        ("a link-local", address.is_link_local),
        ("a multicast", address.is_multicast),
        ("a private", any(address in network for network in _PRIVATE)),
        ("a tunnel's", any(address in network for network in _TUNNELS)),
        ("a reserved", address.is_reserved or not address.is_global),
    ):
        if holds:
            return kind
    return None


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that it leads to: mapped, 6to4 and NAT64 forms."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
