"""On the import path of a process whose gRPC channels are to obey `grpc_proxy`, which a run's own never do."""

from collections.abc import Sequence
from typing import Any

import grpc.aio

_direct = grpc.aio.insecure_channel


def _through_proxy(target: str, options: Sequence[tuple[str, Any]] = (), **more: Any) -> grpc.aio.Channel:
    return _direct(target, options=[one for one in options if one[0] != "grpc.enable_http_proxy"], **more)


grpc.aio.insecure_channel = _through_proxy
