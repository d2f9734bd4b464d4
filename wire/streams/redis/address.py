"""Checks a broker's URL before a connection is made: what it names must be there, and TLS must verify the server."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from headrace.wire.errors import ConfigError

_FILES = {
    "ssl_ca_certs": "the authority that signed the server's certificate",
    "ssl_certfile": "the certificate that is shown to the server",
    "ssl_keyfile": "the key of ssl_certfile",
}
"""Parameters of a `rediss://` URL that name a PEM file, and what it holds."""


def check_address(url: str) -> None:
    """Raises ConfigError, without the password, for parameters that cannot work or that leave the server unverified."""
    parts = urlsplit(url)
    given = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    encrypted = parts.scheme.partition("+")[0] == "rediss"
    for name, value in given.items():
        if name.startswith("ssl_") and not encrypted:
            raise ConfigError(f"{shown}: {name} is for rediss://: this URL's traffic is not encrypted")
        if name in _FILES and not Path(value).is_file():
            raise ConfigError(f"{shown}: {name} = {value!r}: no such file; it must hold {_FILES[name]}, as PEM")
    if given.get("ssl_cert_reqs", "required") != "required":
        raise ConfigError(f"{shown}: ssl_cert_reqs must be `required`: else any server would be taken for the broker")
    if given.get("protocol", "2") != "2":
        raise ConfigError(f"{shown}: protocol must be 2, or be left out: answers of RESP3 have other shapes")
    if ("ssl_certfile" in given) != ("ssl_keyfile" in given):
        raise ConfigError(f"{shown}: give ssl_certfile and ssl_keyfile, or none of them")
