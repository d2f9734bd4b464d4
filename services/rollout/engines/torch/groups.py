"""Host-side state of running groups: their rollouts, the weight versions of these, and the result callback."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from headrace.services.rollout.engines.protocol import Completion, GenerateRequest
from headrace.wire.contracts import FinishReason, IdLists, PolicyVersion, VersionSpan
from headrace.wire.contracts.messages import Logprobs, TokenIds
from headrace.wire.errors import ContractError

Outcome = tuple[Completion, ...] | Exception
Deliver = Callable[[Outcome], None]
_OVERTAKEN = 8
"""Maximum number of chats that may overtake a waiting group."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Version and digest of installed weights."""

    version: PolicyVersion
    weights_digest: str


@dataclass(slots=True, eq=False)
class Group:
    """One request, waiting or running."""

    request: GenerateRequest
    deliver: Deliver
    completions: dict[int, Completion] = field(default_factory=dict)
    overtaken: int = 0
    """Number of later chats that have overtaken this group."""

    @property
    def size(self) -> int:
        """Number of rollouts."""
        return len(self.request.seeds)

    def finish(self, index: int, completion: Completion) -> bool:
        """Adds a finished rollout; with the last one delivers the group and returns True."""
        self.completions[index] = completion
        if len(self.completions) < self.size:
            return False
        self.deliver(tuple(self.completions[place] for place in range(self.size)))
        return True


@dataclass(slots=True, eq=False)
class Member:
    """The rollout in one row."""

    group: Group
    index: int
    starts: list[tuple[int, Installed]]
    """(index of the first token, weights) for each change of the weights during this rollout."""
    kept: list[TokenIds] = field(default_factory=list)
    """The ids that each token was drawn from, ascending, if `keeps_ids`."""

    @property
    def keeps_ids(self) -> bool:
        """Whether the caller gets these ids."""
        return self.group.request.keeps_ids(self.index)

    def mark(self, count: int, installed: Installed) -> None:
        """Records that new weights were installed after `count` tokens."""
        if self.starts[-1][1] == installed:
            return
        if self.starts[-1][0] == count:
            self.starts.pop()
        self.starts.append((count, installed))

    def completion(self, token_ids: TokenIds, logprobs: Logprobs, *, stopped: bool) -> Completion:
        """Builds the finished rollout, with its version spans."""
        ends = [*(start for start, _ in self.starts[1:]), len(token_ids)]
        spans = tuple(
            VersionSpan(start=start, end=end, version=weights.version, weights_digest=weights.weights_digest)
            for (start, weights), end in zip(self.starts, ends, strict=True)
        )
        reason = FinishReason.STOP if stopped else FinishReason.LENGTH
        kept = IdLists.of(self.kept) if self.keeps_ids else None
        return Completion(token_ids=token_ids, logprobs=logprobs, finish_reason=reason, spans=spans, kept=kept)


def enqueue(waiting: deque[Group], group: Group) -> None:
    """Appends a group to the queue; a chat goes before waiting groups, but after chats and often overtaken groups."""
    place = len(waiting)
    if group.request.chat:
        settled = (one.request.chat or one.overtaken >= _OVERTAKEN for one in waiting)
        place = next((number for number, before in enumerate(settled) if not before), place)
        for one in islice(waiting, place, None):
            one.overtaken += 1
    waiting.insert(place, group)


def check_request(request: GenerateRequest, *, vocab: int, rows: int, context_length: int) -> int:
    """Maximum tokens per rollout; raises ContractError for a request that this engine can never serve."""
    sampling = request.sampling
    room = context_length - len(request.token_ids)
    if room < 1:
        raise ContractError(
            "context_overflow",
            f"{request.group_id}: a prompt of {len(request.token_ids)} tokens leaves no room in a context of "
            f"{context_length} (rollout.context_length)",
        )
    if len(request.seeds) > rows:
        raise ContractError("bad_group_size", f"{len(request.seeds)} rollouts, rollout.max_rows is {rows}")
    highest = max(int(request.token_ids.max()), *sampling.stop_token_ids, 0)
    if highest >= vocab or min(sampling.stop_token_ids, default=0) < 0:
        raise ContractError("bad_tokens", f"{request.group_id}: token {highest} of a vocabulary of {vocab}")
    forced = sampling.forced_lengths
    if forced and (len(forced) != len(request.seeds) or min(forced) < 1 or not sampling.stop_token_ids):
        raise ContractError("bad_sampling", "forced_lengths needs a length of 1 or more a rollout, and a stop token")
    return min(sampling.max_tokens, room)
