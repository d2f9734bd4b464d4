"""Per-token arrays as the bytes that travel: little-endian int32 and float32, and one byte a token for a mask."""

import numpy as np

from headrace.wire.contracts.messages import Logprobs, TokenIds, TokenMask
from headrace.wire.errors import ContractError


def ids_to_bytes(values: TokenIds) -> bytes:
    """int32 [n] as little-endian bytes."""
    return values.astype("<i4", copy=False).tobytes()


def ids_from_bytes(data: bytes) -> TokenIds:
    """Little-endian bytes as int32 [n]; raises ContractError (`length_mismatch`) for a partial value."""
    return _from_bytes(data, "<i4").astype(np.int32, copy=False)


def floats_to_bytes(values: Logprobs) -> bytes:
    """float32 [n] as little-endian bytes."""
    return values.astype("<f4", copy=False).tobytes()


def floats_from_bytes(data: bytes) -> Logprobs:
    """Little-endian bytes as float32 [n]; raises ContractError (`length_mismatch`) for a partial value."""
    return _from_bytes(data, "<f4").astype(np.float32, copy=False)


def mask_to_bytes(values: TokenMask) -> bytes:
    """A mask, bool [n], as one byte each."""
    return values.astype(np.uint8).tobytes()


def mask_from_bytes(data: bytes) -> TokenMask:
    """Bytes 0 and 1 as bool [n]; raises ContractError (`bad_mask`) for any other byte."""
    values = np.frombuffer(data, np.uint8)
    if (values > 1).any():
        raise ContractError("bad_mask", "a mask has bytes other than 0 and 1")
    return values.astype(np.bool_)


def _from_bytes(data: bytes, dtype: str) -> np.ndarray:
    if len(data) % 4:
        raise ContractError("length_mismatch", f"{len(data)} bytes are no whole number of 4-byte values")
    return np.frombuffer(data, dtype=dtype)
