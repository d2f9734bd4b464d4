"""SGLang's checksum of a tensor on a GPU, against a transcription of its kernel."""

from itertools import pairwise

import pytest
import torch

from headrace.wire.weights.device_hash import device_hash
from tests.sglang_hash import TILE_WORDS, sglang_gpu_hash

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn)
DTYPES += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
TILE = 4 * TILE_WORDS
EDGES = [0, 1, 3, 4, 5, TILE - 1, TILE, TILE + 1, 2 * TILE - 3, 32 * TILE - 1, 32 * TILE, 32 * TILE + 2, 33 * TILE + 7]


def random_bytes(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8)


def test_a_thousand_random_tensors_have_sglangs_checksums() -> None:
    torch.manual_seed(0)
    for number in range(1000):
        dtype = DTYPES[number % len(DTYPES)]
        most = 3000 if number % 20 else 12 * TILE
        count = int(torch.randint(0, most // dtype.itemsize, ()))
        data = random_bytes(count * dtype.itemsize)
        tensor = data.bitwise_and_(1).view(torch.bool) if dtype is torch.bool else data.view(dtype)
        assert device_hash([tensor]) == sglang_gpu_hash(tensor), (number, dtype, count)


@pytest.mark.parametrize("size", EDGES)
def test_sizes_around_words_tiles_and_chunks_have_sglangs_checksums(size: int) -> None:
    tensor = random_bytes(size)
    assert device_hash([tensor]) == sglang_gpu_hash(tensor)


def test_parts_are_hashed_as_the_tensor_that_they_make_wherever_they_are_cut() -> None:
    whole = random_bytes(40 * TILE + 6)
    expected = sglang_gpu_hash(whole)
    for cuts in ([5], [1, 2, 3], [TILE + 2, 16 * TILE + 5, 33 * TILE + 1], [0, 6, 32 * TILE + 6]):
        edges = [0, *cuts, len(whole)]
        parts = [whole[begin:end] for begin, end in pairwise(edges)]
        assert device_hash(parts) == expected, cuts
        assert device_hash([part.clone() for part in parts]) == expected, cuts


def test_one_bit_or_the_order_of_words_changes_the_checksum() -> None:
    words = torch.arange(3 * TILE_WORDS, dtype=torch.int32)
    seen = {device_hash([words])}
    words[TILE_WORDS + 5] ^= 1
    seen.add(device_hash([words]))
    seen.add(device_hash([words.flip(0)]))
    seen.add(device_hash([torch.cat([words, words.new_zeros(1)])]))
    assert len(seen) == 4
