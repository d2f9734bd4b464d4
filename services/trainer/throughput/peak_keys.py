"""Keys of metrics.jsonl for peaks of memory. Imports no torch."""

DEVICE = "peak_device_memory_bytes"
"""Memory in tensors."""
RESERVED = "peak_device_memory_reserved_bytes"
"""Memory taken from the device by torch's allocator, its unused blocks included."""
HOST = "peak_host_memory_bytes"
"""Resident set of the process: shared and mapped pages included."""
