"""SGLang's checksum kernel, transcribed block by block from `kernels/ops/memory/gpu_tensor_hash.py` of SGLang 0.5.23.

Slow and literal on purpose, in numpy's uint32 and uint64, which wrap as Triton's do: the reference that Headrace's own
implementation is held against. Line numbers are those of that file.
"""

import numpy as np
import torch

FMIX32_C1 = 0x85EBCA6B  # 22
FMIX32_C2 = 0xC2B2AE35  # 23
POS_C1 = 0x27D4EB2D  # 24
POS_C2 = 0x165667B1  # 25
SEED = 0x243F6A88  # 138
TILE_WORDS = 8192  # 139
BLOCK_WORDS = 256  # 140
REDUCE_CHUNK = 1024  # 141
SEED2_FACTOR, SEED2_XOR = 0x9E3779B1, 0xDEADBEEF  # 159
SPLITMIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # 127, 129

U32 = np.uint32
Words = np.ndarray


def rotl32(x: Words, r: int) -> Words:  # 28-30
    return (x << U32(r)) | (x >> U32(32 - r))


def fmix32(x: Words) -> Words:  # 33-42
    x = x ^ (x >> U32(16))
    x = x * U32(FMIX32_C1)
    x = x ^ (x >> U32(13))
    x = x * U32(FMIX32_C2)
    return x ^ (x >> U32(16))


def tile_value(words: Words, pid: int, n_u32: int, seed1: int, seed2: int) -> int:  # 45-98
    base = pid * TILE_WORDS
    h1, h2 = np.zeros(1, U32), np.zeros(1, U32)
    for off in range(0, TILE_WORDS, BLOCK_WORDS):
        idx = base + off + np.arange(BLOCK_WORDS)
        m = idx < n_u32
        v = np.where(m, words[np.minimum(idx, n_u32 - 1)], 0).astype(U32)  # tl.load(..., mask=m, other=0)
        iu = idx.astype(U32)
        p1 = (iu * U32(POS_C1) + U32(seed1)) ^ rotl32(iu, 15)
        p2 = (iu * U32(POS_C2) + U32(seed2)) ^ rotl32(iu, 13)
        k1 = np.where(m, fmix32(v ^ p1), U32(0))
        k2 = np.where(m, fmix32(v ^ p2), U32(0))
        h1 = h1 + k1.sum(dtype=U32)
        h2 = h2 + k2.sum(dtype=U32)
    nbytes = U32((n_u32 * 4) & 0xFFFFFFFF)
    h1, h2 = fmix32(h1 ^ nbytes), fmix32(h2 ^ nbytes)
    return (int(h1[0]) << 32) | int(h2[0])


def as_words(tensor: torch.Tensor) -> Words:  # 112-121
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return np.frombuffer(data + bytes(-len(data) % 4), U32)


def final_splitmix64(x: int) -> int:  # 124-132
    mask = (1 << 64) - 1
    x &= mask
    x ^= x >> 30
    x = (x * SPLITMIX[0]) & mask
    x ^= x >> 27
    x = (x * SPLITMIX[1]) & mask
    x ^= x >> 31
    return x


def sglang_gpu_hash(tensor: torch.Tensor) -> str:  # 135-179; as hex, as `srt/utils/weight_checker.py` tells it
    words = as_words(tensor)
    n = len(words)
    if n == 0:
        return f"{0:016x}"
    seed2 = ((SEED * SEED2_FACTOR) ^ SEED2_XOR) & 0xFFFFFFFF
    cur = [tile_value(words, pid, n, SEED & 0xFFFFFFFF, seed2) for pid in range(-(-n // TILE_WORDS))]
    while len(cur) > 1:  # 101-109
        cur = [sum(cur[at : at + REDUCE_CHUNK]) & ((1 << 64) - 1) for at in range(0, len(cur), REDUCE_CHUNK)]
    return f"{final_splitmix64(cur[0]):016x}"
