"""When the certificate of a server expires, seen by a connection of its own: open ones keep what they were shown."""

import ssl
from typing import Any


async def expiry(client: Any) -> float:
    """Connects anew with a client of redis-py; returns Unix seconds, 0 without TLS. Raises as its commands do."""
    connection: Any = client.connection_pool.make_connection()
    try:
        await connection.connect()
        shown = connection._writer.get_extra_info("peercert") or {}
        return float(ssl.cert_time_to_seconds(shown["notAfter"])) if shown else 0.0
    finally:
        await connection.disconnect(nowait=True)
