"""Logprobs of the reference, computed once: `RUN/reference_logprobs.safetensors`, reused for the same model and data.

They are the policy's before its first step, so a second model is never held.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headrace.services.trainer.algorithms.batching import shared_micro_batches
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.stages.offline.dpo import ReferencedPair, answer_logprobs
from headrace.services.trainer.stages.offline.examples import PreferencePair
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic
from headrace.wire.telemetry.logs import get_logger

_CHUNK_BYTES = 1 << 24
log = get_logger("trainer.reference")


def with_reference(
    backend: Backend,
    sets: Mapping[str, Sequence[PreferencePair]],
    *,
    path: Path,
    digest: str,
    chunk: int,
    micro_batch_tokens: int,
) -> dict[str, list[ReferencedPair]]:
    """Returns the pairs of each set with their logprobs, read from `path` or computed with the backend's current model.

    `digest` covers model and data. Raises ConfigError for a file with another one. Every rank must call it.
    """
    found = _read(path, digest)
    if found is None:
        found = {name: _compute(backend, pairs, chunk=chunk, budget=micro_batch_tokens) for name, pairs in sets.items()}
        if backend.ranks.rank == 0:
            _write(path, found, digest)
        log.info("reference_computed", pairs=sum(map(len, sets.values())), path=str(path))
    return {
        name: [ReferencedPair(pair, *values) for pair, values in zip(pairs, found[name].tolist(), strict=True)]
        for name, pairs in sets.items()
    }


def folder_digest(folder: Path) -> str:
    """Hex sha256 of a model folder's config and weights."""
    state = hashlib.sha256()
    for path in sorted((folder / "config.json", *folder.glob("*.safetensors"))):
        state.update(path.name.encode())
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                state.update(data)
    return state.hexdigest()


def _compute(backend: Backend, pairs: Sequence[PreferencePair], *, chunk: int, budget: int) -> Tensor:
    """Returns float64 [pairs, 2]; each rank computes its share, all get everything."""
    values = torch.zeros(len(pairs), 2, dtype=torch.float64)
    shares = shared_micro_batches(
        [pair.row_tokens for pair in pairs],
        ranks=backend.ranks.data_size,
        token_budget=budget * backend.ranks.context_size,
        overhead_tokens=backend.overhead_tokens,
    )
    with torch.no_grad():
        for share in shares[backend.ranks.data_rank]:
            logprobs, _ = answer_logprobs(backend, [pairs[row] for row in share.rows], chunk=chunk)
            if share.counts:
                values[list(share.rows)] = logprobs.T.double().cpu()
    return backend.ranks.sum_data(values)


def _read(path: Path, digest: str) -> dict[str, Tensor] | None:
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("digest") != digest:
                raise ConfigError(
                    f"{path} was made with another model or other pairs than those of this run: begin a new run in "
                    "another run directory (or remove the file, if the change is intended)"
                )
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
    except SafetensorError as error:
        log.warning("reference_damaged", path=str(path), reason=str(error))
        return None


def _write(path: Path, tensors: Mapping[str, Tensor], digest: str) -> None:
    """Writes the file; durable, because it costs a pass over all pairs."""
    with atomic.replaced_file(path, durable=True) as aside:
        save_file(dict(tensors), aside, metadata={"digest": digest})
