"""Under which keys of metrics.jsonl peaks of memory are told. Imports no torch."""

DEVICE = "peak_device_memory_bytes"
"""In tensors."""
RESERVED = "peak_device_memory_reserved_bytes"
"""Taken from the device by torch's allocator, its unused blocks included."""
HOST = "peak_host_memory_bytes"
"""Resident set of the process: shared and mapped pages included."""
