"""The state of all rows as tensors, which a decode step reads and writes without a loop over rows."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace.services.rollout.engines.protocol import GenerateRequest
from headrace.services.rollout.engines.torch.sampling import RowSampling

_HELD, _COUNT, _LIMIT, _LAST, _ALIVE, _SEED, _TOP_K, _CUT, _GREEDY, _FORCED = range(10)


class RowState:
    """Row r of every tensor belongs to row r of the cache. The first rows are in use, the rest are free."""

    def __init__(self, *, rows: int, context_length: int, vocab: int, device: torch.device) -> None:
        self._numbers = torch.zeros(10, rows, dtype=torch.int64, device=device)
        self._shares = torch.ones(3, rows, dtype=torch.float64, device=device)
        self._stops = torch.full((rows, 4), -1, dtype=torch.int64, device=device)
        # One column more than a completion can have, for the ignored writes of finished rows.
        self._tokens = torch.zeros(rows, context_length + 1, dtype=torch.int32, device=device)
        self._logprobs = torch.zeros(rows, context_length + 1, dtype=torch.float32, device=device)
        self._starts = torch.arange(rows, device=device) * (context_length + 1)
        self._vocab = vocab
        self._device = device
        # Values that the host needs in every step; on a CPU they share the tensors' memory.
        shared = device.type == "cpu"
        self.held: NDArray[np.int64] = self._numbers[_HELD].numpy() if shared else np.zeros(rows, np.int64)
        self.alive: NDArray[np.int64] = self._numbers[_ALIVE].numpy() if shared else np.zeros(rows, np.int64)
        self._shared = shared

    def join(self, start: int, request: GenerateRequest, limit: int) -> None:
        """Fills rows from `start` with a prefilled group; each may sample at most `limit` tokens."""
        sampling = request.sampling
        end = start + len(request.seeds)
        columns = self._numbers[:, start:end]
        columns[_HELD] = len(request.token_ids)
        columns[_COUNT] = 0
        columns[_LIMIT] = limit
        columns[_ALIVE] = 1
        columns[_SEED] = torch.tensor(request.seeds, device=self._device)
        columns[_TOP_K] = min(sampling.most_kept, self._vocab)
        columns[_CUT] = 0
        columns[_CUT, : request.greedy_from] = int(sampling.is_cut)
        columns[_GREEDY, : request.greedy_from] = 0
        columns[_GREEDY, request.greedy_from :] = 1
        columns[_FORCED] = torch.tensor(sampling.forced_lengths or (0,), device=self._device)
        self._shares[0, start:end] = 1.0 / sampling.temperature
        self._shares[0, start + request.greedy_from : end] = 1.0
        self._shares[1, start:end] = sampling.top_p
        self._shares[2, start:end] = sampling.min_p
        self._set_stops(start, end, sampling.stop_token_ids)
        if not self._shared:
            self.held[start:end] = len(request.token_ids)
            self.alive[start:end] = 1

    def inputs(self, count: int) -> tuple[Tensor, Tensor]:
        """(last token, position at which it is written), int64 [count] each."""
        return self._numbers[_LAST, :count], self._numbers[_HELD, :count]

    def sampling(self, start: int, end: int) -> tuple[RowSampling, Tensor]:
        """Sampling parameters of rows [start, end) and the number of tokens each has sampled."""
        numbers = self._numbers[:, start:end]
        parameters = RowSampling(
            seed=numbers[_SEED],
            inverse_temperature=self._shares[0, start:end].float(),
            top_k=numbers[_TOP_K],
            top_p=self._shares[1, start:end],
            min_p=self._shares[2, start:end],
            cut=numbers[_CUT].bool(),
            greedy=numbers[_GREEDY].bool(),
            forced_length=numbers[_FORCED],
            stops=self._stops[start:end],
        )
        return parameters, numbers[_COUNT]

    def advance(self, count: int) -> None:
        """Counts one more cached position for each live row among the first `count`, after a decode step."""
        self._numbers[_HELD, :count] += self._numbers[_ALIVE, :count]
        if not self._shared:
            self.held[:count] += self.alive[:count]

    def record(self, start: int, end: int, tokens: Tensor, logprobs: Tensor) -> list[tuple[int, bool]]:
        """Appends a sampled token to rows [start, end); returns (row, ended at a stop token?) for rows that ended."""
        numbers = self._numbers[:, start:end]
        places = self._starts[start:end] + numbers[_COUNT]
        self._tokens.view(-1).index_copy_(0, places, tokens.int())
        self._logprobs.view(-1).index_copy_(0, places, logprobs)
        numbers[_LAST] = tokens
        numbers[_COUNT] += numbers[_ALIVE]
        stopped = (tokens[:, None] == self._stops[start:end]).any(1)
        ended = (stopped | (numbers[_COUNT] >= numbers[_LIMIT])) & (numbers[_ALIVE] == 1)
        found = ended.nonzero().squeeze(1)
        if not len(found):
            return []
        numbers[_ALIVE, found] = 0
        rows = [start + place for place in found.tolist()]
        if not self._shared:
            self.alive[rows] = 0
        return list(zip(rows, stopped[found].tolist(), strict=True))

    def drop(self, rows: Sequence[int]) -> None:
        """Marks rows as not alive, without a completion."""
        if not rows:
            return
        self._numbers[_ALIVE, list(rows)] = 0
        self.alive[list(rows)] = 0

    def completion(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Copies of the tokens and logprobs of one row."""
        count = int(self._numbers[_COUNT, row])
        return self._tokens[row, :count].cpu().numpy().copy(), self._logprobs[row, :count].cpu().numpy().copy()

    def counts(self, count: int) -> list[int]:
        """Number of tokens sampled by each of the first rows."""
        found: list[int] = self._numbers[_COUNT, :count].tolist()
        return found

    def tokens(self, rows: Tensor, length: int) -> Tensor:
        """The first `length` completion tokens of the given rows, int64 [rows, length]."""
        return self._tokens.index_select(0, rows)[:, :length].long()

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Moves rows, as if simultaneously."""
        read = torch.tensor(sources, device=self._device)
        written = torch.tensor(targets, device=self._device)
        for table, axis in ((self._numbers, 1), (self._shares, 1), (self._stops, 0)):
            table.index_copy_(axis, written, table.index_select(axis, read))
        for table in (self._tokens, self._logprobs):
            table.index_copy_(0, written, table.index_select(0, read))
        if not self._shared:
            self.held[targets] = self.held[sources]
            self.alive[targets] = self.alive[sources]

    def _set_stops(self, start: int, end: int, stops: tuple[int, ...]) -> None:
        missing = len(stops) - self._stops.shape[1]
        if missing > 0:
            self._stops = torch.nn.functional.pad(self._stops, (0, missing), value=-1)
        self._stops[start:end] = -1
        if stops:
            self._stops[start:end, : len(stops)] = torch.tensor(stops, device=self._device)
