"""Metrics of weight transfers: durations and bytes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.services.trainer import metrics
from headrace.wire.v1 import common_pb2


@contextmanager
def timed_send(route: str, plan: common_pb2.WeightPlan) -> Iterator[None]:
    """Observes one transfer of a plan's weights by `route`: nccl, gloo or disk."""
    begin, outcome = time.monotonic(), "failed"
    try:
        yield
        outcome = "done"
        metrics.SENT_BYTES.labels(route).inc(sum(bucket.size_bytes for bucket in plan.buckets))
    finally:
        metrics.SEND_SECONDS.labels(route, outcome).observe(time.monotonic() - begin)
