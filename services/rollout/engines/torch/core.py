"""Continuous batching: groups join when rows are free, rollouts leave when they end. Synchronous, owned by one thread.

A `step` admits waiting groups (one prefill each, from which the first token is sampled), orders the rows, decodes one
token for every row and removes finished rollouts. In deterministic mode one group runs at a time and keeps its shape:
finished rows stay as padding, so that each product has the same shape regardless of earlier requests.
"""

import time
from collections import deque

import numpy as np
import torch

from headrace.services.rollout.engines.protocol import (
    AbandonedError,
    Begun,
    EngineStats,
    GenerateRequest,
    GenerationError,
    InFlight,
)
from headrace.services.rollout.engines.torch.groups import Deliver, Group, Installed, Member, check_request, enqueue
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.order import arrange, fixed_block, row_blocks
from headrace.services.rollout.engines.torch.recompute import recompute
from headrace.services.rollout.engines.torch.rows import RowState
from headrace.services.rollout.engines.torch.sampling import RowKinds, sample
from headrace.services.rollout.engines.torch.weights import ModelWeights

_REORDER_STEPS = 32
"""Steps between reorderings while no rollout joins or leaves: rows change their length class only by growing."""


class EngineCore:
    """Waiting and running groups over one model."""

    def __init__(self, model: Model, *, vocab: int, deterministic: bool, device: torch.device) -> None:
        cache = model.cache
        self._model = model
        self._rows = RowState(rows=cache.rows, context_length=cache.context_length, vocab=vocab, device=device)
        self._vocab = vocab
        self._deterministic = deterministic
        self._device = device
        self.admitting = True
        """False while running groups are drained."""
        self._waiting: deque[Group] = deque()
        self._members: list[Member] = []
        self.installed: Installed | None = None
        """The installed weights; None before the first publication."""
        self._kinds = RowKinds(tempered=False, truncated=0, greedy=False, forced=False)
        self._steps_since_order = 0
        self._generated = self._prompt = self._recomputed = 0
        self._decode_seconds = self._busy_seconds = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a step would have any effect."""
        return bool(self._members or (self._waiting and self.admitting))

    @property
    def is_idle(self) -> bool:
        """Whether no rollout is being decoded."""
        return not self._members

    def submit(self, request: GenerateRequest, deliver: Deliver) -> Group:
        """Queues a group; a later step calls `deliver`. Raises ContractError for an impossible request."""
        self._limit(request)
        group = Group(request=request, deliver=deliver)
        enqueue(self._waiting, group)
        return group

    def cancel(self, group: Group) -> None:
        """Removes a group whose caller no longer waits."""
        if group in self._waiting:
            self._waiting.remove(group)
        self._rows.drop([row for row, member in enumerate(self._members) if member.group is group])
        if not self._rows.alive[: len(self._members)].any():
            self._members = []

    def begun(self, group_id: str) -> Begun | None:
        """Implements `Engine.begun` from the rows and the completions finished so far."""
        group = next((one for one in self._running() if one.request.group_id == group_id), None)
        if group is None:
            return None
        lengths = {index: len(done.token_ids) for index, done in group.completions.items()}
        versions = [done.spans[0].version.version for done in group.completions.values()]
        for member, count in zip(self._members, self._rows.counts(len(self._members)), strict=True):
            if member.group is group:
                lengths.setdefault(member.index, count)
                versions.append(member.starts[0][1].version.version)
        return Begun(oldest=min(versions), lengths=tuple(lengths[index] for index in sorted(lengths)))

    def stats(self) -> EngineStats:
        """Counters; may be read from another thread."""
        running = self._running()
        return EngineStats(
            groups=len(running) + len(self._waiting),
            rollouts=int(self._rows.alive.sum()),
            waiting=sum(group.size for group in tuple(self._waiting)),
            generated_tokens=self._generated,
            prompt_tokens=self._prompt,
            recomputed_tokens=self._recomputed,
            decode_seconds=self._decode_seconds,
            busy_seconds=self._busy_seconds,
        )

    @torch.inference_mode()
    def install(self, weights: ModelWeights, installed: Installed, in_flight: InFlight) -> None:
        """Replaces the weights. If they differ from the old ones, running rollouts continue as `in_flight` requires."""
        same = self.installed is not None and self.installed.weights_digest == installed.weights_digest
        self.installed = installed
        self._model.weights = weights
        if not self._members:
            return
        if same:
            # The cache holds what these weights would compute: only the version number is new.
            self._mark(installed)
        elif self._deterministic:
            self._restart_group()
        else:
            self._mark(installed)
            if in_flight is not InFlight.IN_PLACE:
                self._compact()
                self._recomputed += recompute(self._model, self._rows, self._members, self._device)

    @torch.inference_mode()
    def score(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Logprobs by `Model.score`, float32 [seq - 1], on the CPU; running rollouts are unaffected."""
        return self._model.score(token_ids.to(self._device)).cpu()

    def abandon(self, reason: str) -> None:
        """Abandons all groups: delivers AbandonedError to each."""
        groups = [*self._running(), *self._waiting]
        self._rows.drop(range(len(self._members)))
        self._members = []
        self._waiting.clear()
        for group in groups:
            group.deliver(AbandonedError(reason))

    @torch.inference_mode()
    def step(self) -> None:
        """Admits waiting groups that fit and decodes one token of every running rollout."""
        began = time.perf_counter()
        self._admit()
        if self._members:
            self._decode()
        self._busy_seconds += time.perf_counter() - began

    def _running(self) -> list[Group]:
        """Groups with a live row; a delivered group may still have rows that are not removed yet."""
        alive = self._rows.alive.tolist()
        return list(
            {id(each.group): each.group for each, live in zip(self._members, alive, strict=False) if live}.values()
        )

    def _limit(self, request: GenerateRequest) -> int:
        cache = self._model.cache
        return check_request(request, vocab=self._vocab, rows=cache.rows, context_length=cache.context_length)

    def _admit(self) -> None:
        admitted = False
        while self.admitting and self._waiting and self._fits(self._waiting[0]):
            group = self._waiting.popleft()
            if len(self._members) + group.size > self._model.cache.rows:
                # Enough rows are free, but not contiguous: finished rollouts lie between the live ones.
                self._compact()
            self._join(group)
            admitted = True
        if admitted:
            self._kinds = _kinds(self._members)

    def _fits(self, group: Group) -> bool:
        if self._deterministic:
            return not self._members
        return group.size <= self._model.cache.rows - int(self._rows.alive[: len(self._members)].sum())

    def _join(self, group: Group) -> None:
        assert self.installed is not None, "nothing is submitted before the first weights"
        start, end = len(self._members), len(self._members) + group.size
        prompt = torch.tensor(group.request.token_ids, dtype=torch.int64, device=self._device)
        logits = self._model.prefill(start, prompt)
        self._model.cache.copy_prefix(start, range(start + 1, end), len(prompt))
        self._prompt += len(prompt)
        self._rows.join(start, group.request, self._limit(group.request))
        self._members += [Member(group, index, [(0, self.installed)]) for index in range(group.size)]
        self._take(start, end, logits.expand(group.size, -1), _kinds(self._members[start:]))

    def _decode(self) -> None:
        began = time.perf_counter()
        if self._deterministic:
            parts = fixed_block(len(self._members), int(self._rows.held[: len(self._members)].max()) + 1)
        else:
            self._steps_since_order += 1
            alive = self._rows.alive[: len(self._members)]
            if self._steps_since_order >= _REORDER_STEPS or not alive.all():
                self._compact()
            if not self._members:
                return
            parts = row_blocks(self._rows.held[: len(self._members)] + 1)
        count = len(self._members)
        tokens, positions = self._rows.inputs(count)
        logits = self._model.decode(tokens, positions, parts)
        self._rows.advance(count)
        self._take(0, count, logits, self._kinds)
        self._decode_seconds += time.perf_counter() - began

    def _take(self, start: int, end: int, logits: torch.Tensor, kinds: RowKinds) -> None:
        """Samples from `logits` for rows [start, end) and delivers finished rollouts."""
        parameters, counts = self._rows.sampling(start, end)
        tokens, logprobs, kept = sample(logits, parameters, kinds, counts)
        if not bool(torch.isfinite(logprobs).all()):
            self._fail_astray(start, logprobs)
            return
        if kept is not None:
            self._keep(start, end, kept)
        self._generated += int(self._rows.alive[start:end].sum())
        for row, stopped in self._rows.record(start, end, tokens, logprobs):
            member = self._members[row]
            token_ids, values = self._rows.completion(row)
            member.group.finish(member.index, member.completion(token_ids, values, stopped=stopped))
        if self._deterministic and not self._rows.alive[: len(self._members)].any():
            self._members = []

    def _keep(self, start: int, end: int, kept: torch.Tensor) -> None:
        """Adds the ids that the next token of each live row is drawn from, if its request keeps them."""
        ids = np.split(kept.nonzero()[:, 1].int().cpu().numpy(), kept.sum(-1).cumsum(0)[:-1].cpu().numpy())
        for member, alive, own in zip(self._members[start:end], self._rows.alive[start:end], ids, strict=True):
            if alive and member.keeps_ids:
                member.kept.append(own)

    def _compact(self) -> None:
        """Closes the gaps left by finished rollouts and orders the rest by length class."""
        self._steps_since_order = 0
        used = len(self._members)
        moves = arrange(self._rows.held[:used], self._rows.alive[:used].astype(bool))
        if len(moves.sources):
            sources, targets = moves.sources.tolist(), moves.targets.tolist()
            self._model.cache.move_rows(sources, targets, self._rows.held[moves.sources].tolist())
            self._rows.move(sources, targets)
            members = list(self._members)
            for source, target in zip(sources, targets, strict=True):
                members[target] = self._members[source]
            self._members = members
        if moves.count < used:
            self._rows.drop(range(moves.count, used))
            del self._members[moves.count :]
            self._kinds = _kinds(self._members)

    def _mark(self, installed: Installed) -> None:
        for member, count in zip(self._members, self._rows.counts(len(self._members)), strict=True):
            member.mark(count, installed)

    def _restart_group(self) -> None:
        """Restarts the group in deterministic mode: a recomputed prefix is not bitwise equal to a decoded one."""
        group = self._members[0].group
        self._rows.drop(range(len(self._members)))
        self._members = []
        # The same object: its caller cancels it by identity.
        group.completions.clear()
        self._waiting.appendleft(group)

    def _fail_astray(self, start: int, logprobs: torch.Tensor) -> None:
        """Fails all running groups after non-finite logprobs; clears the cache, since NaN would spread."""
        groups = self._running()
        self._rows.drop(range(len(self._members)))
        self._members = []
        self._model.cache.clear()
        bad = int((~torch.isfinite(logprobs)).sum())
        for group in groups:
            group.deliver(GenerationError(f"{bad} of {len(logprobs)} logprobs are not finite: the model has diverged"))


def _kinds(members: list[Member]) -> RowKinds:
    requests = {id(member.group): member.group.request for member in members}.values()
    sampled = [each.sampling for each in requests if each.greedy_from > 0]
    return RowKinds(
        tempered=any(each.temperature != 1 for each in sampled),
        truncated=max((each.sampling.most_kept for each in requests if each.sampling.is_cut), default=0),
        greedy=any(each.greedy_from < len(each.seeds) for each in requests),
        forced=any(bool(each.sampling.forced_lengths) for each in requests),
    )
