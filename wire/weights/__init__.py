"""Policy weights on their way from the trainer to the engines: plan, digests, collective transfer, disk.

The only part of `wire` that imports torch. Weights are named and shaped as in a checkpoint; tied ones travel once.
"""

from headrace.wire.weights.collective import CollectiveGroup, open_store
from headrace.wire.weights.digest import bucket_digest, digest_as, plan_digest, weights_sha256
from headrace.wire.weights.disk import load_weights, read_metadata, save_weights
from headrace.wire.weights.groups import WeightGroup, plain_group
from headrace.wire.weights.plan import (
    DEFAULT_BUCKET_BYTES,
    Snapshot,
    allocate,
    join_groups,
    make_snapshot,
    snapshot_groups,
    tensors_of,
)
from headrace.wire.weights.routes import device_names, nccl_version
from headrace.wire.weights.staging import Staging, host_buffer, on_gpu, side_stream, wait_for_copies
from headrace.wire.weights.store import GroupStore

__all__ = [
    "DEFAULT_BUCKET_BYTES",
    "CollectiveGroup",
    "GroupStore",
    "Snapshot",
    "Staging",
    "WeightGroup",
    "allocate",
    "bucket_digest",
    "device_names",
    "digest_as",
    "host_buffer",
    "join_groups",
    "load_weights",
    "make_snapshot",
    "nccl_version",
    "on_gpu",
    "open_store",
    "plain_group",
    "plan_digest",
    "read_metadata",
    "save_weights",
    "side_stream",
    "snapshot_groups",
    "tensors_of",
    "wait_for_copies",
    "weights_sha256",
]
