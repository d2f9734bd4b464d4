"""The tiles of SGLang's checksum in one pass over a GPU's memory, as a Triton kernel; `device_hash` says what they are.

torch's own operations go over each word some forty times.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8192
_BLOCK = 1024


def tile_values(words: Tensor, start: int, size: int) -> Tensor:
    """int64 [tiles]: values of the tiles of `words` (int32 [words], contiguous), modulo 2**64.

    The first is word `start`, a whole number of tiles, of a tensor of `size` bytes.
    """
    found = torch.empty(-(-len(words) // TILE), dtype=torch.int64, device=words.device)
    with torch.cuda.device_of(words):  # Triton starts a kernel on the current device, wherever its arguments are.
        _tile_value[(len(found),)](words, found, len(words), start, _signed(size), TILE=TILE, BLOCK=_BLOCK)
    return found


def _signed(size: int) -> int:
    """The lower 32 bits, as the int32 that a kernel's argument is, for any value."""
    return (size + 2**31) % 2**32 - 2**31


@triton.jit
def _rotated(x, bits: tl.constexpr):
    return (x << bits) | (x >> (32 - bits))


@triton.jit
def _finished(x):
    """MurmurHash3's finalizer, uint32."""
    x ^= x >> 16
    x *= tl.full((), 0x85EBCA6B, tl.uint32)
    x ^= x >> 13
    x *= tl.full((), 0xC2B2AE35, tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def _mixed(word, position, factor: tl.constexpr, seed: tl.constexpr, turn: tl.constexpr):
    """Each word mixed with its position, uint32."""
    spread = position * tl.full((), factor, tl.uint32) + tl.full((), seed, tl.uint32)
    return _finished(word ^ spread ^ _rotated(position, turn))


@triton.jit(do_not_specialize=["count", "start", "size"])
def _tile_value(words, found, count, start, size, TILE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * TILE
    high = tl.zeros((BLOCK,), tl.uint32)
    low = tl.zeros((BLOCK,), tl.uint32)
    for begin in range(0, TILE, BLOCK):
        here = first + begin + tl.arange(0, BLOCK)
        inside = here < count
        word = tl.load(words + here, mask=inside, other=0).to(tl.uint32, bitcast=True)
        position = (start + here).to(tl.uint32, bitcast=True)
        nothing = tl.zeros((BLOCK,), tl.uint32)
        high += tl.where(inside, _mixed(word, position, 0x27D4EB2D, 0x243F6A88, 15), nothing)
        low += tl.where(inside, _mixed(word, position, 0x165667B1, 0x02C74EE7, 13), nothing)
    length = size.to(tl.uint32, bitcast=True)
    upper = _finished(tl.sum(high, 0).to(tl.uint32) ^ length).to(tl.uint64)
    lower = _finished(tl.sum(low, 0).to(tl.uint32) ^ length).to(tl.uint64)
    tl.store(found + tl.program_id(0), ((upper << 32) | lower).to(tl.int64, bitcast=True))
