"""What a publication costs the training thread: the snapshot of weights of some size.

python -P -m headrace.selfcheck.publish --gb 3.2 --on cuda|cpu
"""

import sys
import time

import torch

from headrace.selfcheck.probe import device_of, end, parser, synchronize
from headrace.wire.contracts.digests import XXH3
from headrace.wire.weights import bucket_digest, digest_as, make_snapshot

_SIDE = 1024


def main() -> int:
    """Times the second snapshot, which reuses the buckets of the first."""
    made = parser(__doc__ or "")
    made.add_argument("--gb", type=float, default=3.2)
    options = made.parse_args()
    device = device_of(options.on)
    count = max(round(options.gb * 1e9 / (2 * _SIDE * _SIDE)), 1)
    named = [(f"weight{number}", torch.randn(_SIDE, _SIDE, device=device)) for number in range(count)]
    spare = make_snapshot(named, dtype=torch.bfloat16).buckets
    synchronize(device)
    began = time.perf_counter()
    snapshot = make_snapshot(named, dtype=torch.bfloat16, into=spare)
    whole = time.perf_counter() - began
    size = sum(len(bucket) for bucket in snapshot.buckets)
    began = time.perf_counter()
    for bucket in snapshot.buckets:
        bucket_digest(bucket, XXH3)
    digest = time.perf_counter() - began
    wanted = [one.digest for one in snapshot.plan.buckets]
    found = [digest_as(bucket, one, device=device) for bucket, one in zip(snapshot.buckets, wanted, strict=True)]
    equal = found == wanted
    said = f"{size / 1e9:.2f} GB in {whole:.3f} s; an xxh3 of it takes {digest:.3f} s"
    end(ok=equal, said=said, gb=round(size / 1e9, 3), snapshot_s=round(whole, 4), digest_s=round(digest, 4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
