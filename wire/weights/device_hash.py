"""SGLang's checksum of a tensor on a GPU, a pure function of its bytes, in plain integer operations of torch.

Source: SGLang 0.5.23, `sglang/kernels/ops/memory/gpu_tensor_hash.py`. The bytes, padded with zeros to whole 32-bit
words, are mixed with their positions twice under two seeds, summed in tiles of 8192 words, mixed again, and the tiles'
64-bit values are summed and mixed once more. Where the tensor lies is where it is hashed: on a GPU by the kernel of
`tile_kernel`, if Triton works there, on all else by torch's operations.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from headrace.wire.contracts.digests import SGL64_MOST_BYTES
from headrace.wire.errors import ContractError
from headrace.wire.telemetry.logs import get_logger

log = get_logger("headrace.wire.weights")
_TILE = 8192
_WORDS = {"cpu": 32 * _TILE, "cuda": 512 * _TILE}
"""Words at a time: temporaries that stay in the cache of a core, or of a GPU."""
_KERNEL_WORDS = 2048 * _TILE
"""Words at a time of the kernel, which has no temporaries: enough to fill a GPU."""
_SEED = 0x243F6A88
_SEED_2 = ((_SEED * 0x9E3779B1) ^ 0xDEADBEEF) & 0xFFFFFFFF
_HALVES = ((0x27D4EB2D, _SEED, 15), (0x165667B1, _SEED_2, 13))
"""What each half of the value makes of a position: factor, seed, bits to rotate by."""
_MASK_64 = 2**64 - 1


def device_hash(parts: Sequence[Tensor], device: torch.device | None = None) -> str:
    """16 hex digits: SGLang's checksum of a tensor that holds the bytes of `parts`, one after the other.

    Parts of any shape, dtype and stride; they are hashed on `device`, or where the first one lies. Raises ContractError
    (`tensor_too_large`) from 8 GiB on, where SGLang's own kernel counts wrongly.
    """
    size = sum(part.numel() * part.element_size() for part in parts)
    words = -(-size // 4)
    if words * 4 > SGL64_MOST_BYTES:
        raise ContractError(
            "tensor_too_large", f"SGLang's checksum is for tensors below 8 GiB, this one has {size} bytes"
        )
    if not words:
        return f"{0:016x}"
    device = device or parts[0].device
    total = torch.zeros((), dtype=torch.int64, device=device)
    kernel = _kernel(device) if device.type == "cuda" else None
    most = _KERNEL_WORDS if kernel else _WORDS.get(device.type, _WORDS["cpu"])
    room = min(most, -(-words // _TILE) * _TILE)
    tiles = kernel or _Operations(room, device)
    start = 0
    for chunk in _word_chunks(parts, torch.empty(room * 4, dtype=torch.uint8, device=device)):
        total += tiles(chunk, start, words * 4).sum()
        start += len(chunk)
    return f"{_splitmix64(int(total.item()) & _MASK_64):016x}"


Tiles = Callable[[Tensor, int, int], Tensor]
"""int64 [tiles], modulo 2**64: the values of the tiles of some words (int32), of which the first is word N of a tensor
of so many bytes."""


@functools.cache
def _kernel(device: torch.device) -> Tiles | None:
    """The kernel, if it works on this GPU, which Triton must support; at its first use it needs a C compiler."""
    words = torch.arange(2 * _TILE + 5, dtype=torch.int32, device=device)
    expected = _Operations(len(words), device)(words, 3 * _TILE, 2**32 + 20)
    try:
        from headrace.wire.weights.tile_kernel import tile_values

        equal = torch.equal(tile_values(words, 3 * _TILE, 2**32 + 20), expected)
    except Exception as error:  # A compiler's errors have no common class.
        log.warning("checksum_kernel_missing", error=f"{type(error).__name__}: {error}"[:300])
        return None
    if not equal:
        log.warning("checksum_kernel_wrong", device=str(device))
        return None
    return tile_values


class _Operations:
    """The tiles by torch's operations, in memory that every chunk uses anew."""

    def __init__(self, words: int, device: torch.device) -> None:
        self.mixed = torch.empty(words, dtype=torch.int32, device=device)
        self.shifted = torch.empty(words, dtype=torch.int32, device=device)
        self.counted = torch.arange(words, dtype=torch.int32, device=device)

    def __call__(self, words: Tensor, start: int, size: int) -> Tensor:
        count = len(words)
        mixed, shifted = self.mixed[:count], self.shifted[:count]
        high, low = (
            _mix_sums(_tile_sums(_mix(words, start, half, mixed, shifted, self.counted[:count])), size)
            for half in _HALVES
        )
        return (high << 32) | low


def _word_chunks(parts: Sequence[Tensor], scratch: Tensor) -> Iterator[Tensor]:
    """int32 [up to as many words as the scratch has], whole tiles each but the last one's end, padded with zeros."""
    room, filled = len(scratch), 0
    for part in parts:
        data = part.detach().contiguous().view(-1).view(torch.uint8)
        here = data.device == scratch.device
        while len(data):
            # What begins at a word is read where it lies.
            if here and not filled and len(data) >= room and data.storage_offset() % 4 == 0:
                chunk, data = data[:room], data[room:]
                yield chunk.view(torch.int32)
                continue
            taken = min(room - filled, len(data))
            scratch[filled : filled + taken] = data[:taken]
            data, filled = data[taken:], filled + taken
            if filled == room:
                yield scratch.view(torch.int32)
                filled = 0
    if filled:
        end = -(-filled // 4) * 4
        scratch[filled:end] = 0
        yield scratch[:end].view(torch.int32)


def _mix(words: Tensor, start: int, half: tuple[int, int, int], x: Tensor, y: Tensor, counted: Tensor) -> Tensor:
    """int32 [words] in `x`: each word mixed with its position. int32 wraps as uint32 does; a shift must be masked."""
    factor, seed, turn = half
    torch.add(counted, start, out=x)
    torch.bitwise_left_shift(x, turn, out=y)
    _shift_right(x, 32 - turn, x)
    y.bitwise_or_(x)
    torch.add(counted, start, out=x)
    x.mul_(_signed(factor)).add_(_signed(seed)).bitwise_xor_(y)
    x.bitwise_xor_(words)
    return _fmix32(x, y)


def _fmix32(x: Tensor, y: Tensor) -> Tensor:
    """MurmurHash3's finalizer in place, int32; `y` is for intermediate values."""
    x.bitwise_xor_(_shift_right(x, 16, y)).mul_(_signed(0x85EBCA6B))
    x.bitwise_xor_(_shift_right(x, 13, y)).mul_(_signed(0xC2B2AE35))
    return x.bitwise_xor_(_shift_right(x, 16, y))


def _shift_right(x: Tensor, bits: int, out: Tensor) -> Tensor:
    """Logical, where torch's is arithmetic."""
    return torch.bitwise_right_shift(x, bits, out=out).bitwise_and_((1 << (32 - bits)) - 1)


def _tile_sums(mixed: Tensor) -> Tensor:
    """int64 [tiles]; only their lower 32 bits count."""
    whole = len(mixed) // _TILE * _TILE
    sums = mixed[:whole].view(-1, _TILE).sum(1)
    return torch.cat([sums, mixed[whole:].sum().view(1)]) if whole < len(mixed) else sums


def _mix_sums(sums: Tensor, size: int) -> Tensor:
    """int64 [tiles] in 0 .. 2**32 - 1."""
    x = (sums ^ size).to(torch.int32)
    return _fmix32(x, torch.empty_like(x)).to(torch.int64) & 0xFFFFFFFF


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def _splitmix64(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK_64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK_64
    return x ^ x >> 31
