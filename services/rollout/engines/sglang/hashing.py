"""The server's checksums of its own tensors (`/weights_checker`), without those too large for its kernel."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.wire.contracts.fused_names import oversized
from headrace.wire.errors import ContractError
from headrace.wire.rundir.model_files import indexed_weights, read_header
from headrace.wire.v1.common_pb2 import WeightPlan

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_SINGLE = "model.safetensors"


class Hashing:
    """Checksums of one server's weights."""

    def __init__(self, client: SGLangClient, *, ranks: int, on_gpu: bool) -> None:
        self._client = client
        self._ranks = ranks
        self._on_gpu = on_gpu
        self._leave_out: list[str] = []

    def expect(self, plan: WeightPlan) -> None:
        """Sets the tensor sizes from the plan of the weights that the server will receive."""
        self._look_at(_plan_sizes(plan))

    def expect_folder(self, folder: Path, dtype: str) -> None:
        """Sets the tensor sizes from the folder it has loaded; raises ContractError (`bad_weights`) if unreadable."""
        if self._on_gpu:
            self._look_at(_folder_sizes(folder, _BYTES[dtype]))

    def _look_at(self, sizes: Iterator[tuple[str, int]]) -> None:
        # On a CPU the checksum is a sha256, without a size limit.
        self._leave_out = oversized(sizes, self._ranks) if self._on_gpu else []

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Tensor -> hash; keys are `RANK/TENSOR` with several ranks. Empty hash if too large for SGLang's kernel."""
        ranks = await self._client.checksums(timeout_s, self._leave_out)
        return _by_rank([found | dict.fromkeys(self._leave_out, "") for found in ranks])


def _by_rank(ranks: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    if len(ranks) == 1:
        return ranks[0]
    return {f"{rank}/{name}": value for rank, found in enumerate(ranks) for name, value in found.items()}


def _plan_sizes(plan: WeightPlan) -> Iterator[tuple[str, int]]:
    for bucket in plan.buckets:
        for spec in bucket.tensors:
            yield spec.name, math.prod(spec.shape) * _BYTES.get(spec.dtype, 8)


def _folder_sizes(folder: Path, element_bytes: int) -> Iterator[tuple[str, int]]:
    """Tensor sizes from the headers of the safetensors files."""
    try:
        for file in sorted(set((indexed_weights(folder) or {"": folder / _SINGLE}).values())):
            for name, spec in read_header(file)[0].items():
                yield name, math.prod(spec["shape"]) * element_bytes
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"model.path {folder}: the sizes of its tensors cannot be read: {error!r}"
        raise ContractError("bad_weights", what) from error
