"""What every completion must satisfy in any message."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.wire.errors import ContractError

TokenIds = NDArray[np.int32]
Logprobs = NDArray[np.float32]
TokenMask = NDArray[np.bool_]


class TokenRange(Protocol):
    """Tokens [start, end) of a completion."""

    @property
    def start(self) -> int:
        """The first token."""

    @property
    def end(self) -> int:
        """The position after the last token."""


def check_ids(what: str, token_ids: TokenIds) -> None:
    """Raises ContractError unless `token_ids` are one or more token ids, int32 [tokens]."""
    if token_ids.dtype != np.int32 or token_ids.ndim != 1:
        raise ContractError("bad_tokens", f"{what} ids must be int32 [tokens], not {token_ids.dtype} {token_ids.shape}")
    if not len(token_ids):
        raise ContractError("empty", f"{what} has no tokens")
    if token_ids.min() < 0:
        raise ContractError("bad_tokens", f"{what} has a negative token id")


def check_sampled(name: str, token_ids: TokenIds, logprobs: Logprobs, spans: Sequence[TokenRange]) -> None:
    """Raises ContractError unless logprobs are numbers and spans cover the completion, token by token."""
    if logprobs.dtype != np.float32 or logprobs.shape != token_ids.shape:
        raise ContractError("length_mismatch", f"{name}: {len(token_ids)} tokens, {len(logprobs)} logprobs")
    if not np.isfinite(logprobs).all() or (logprobs > 1e-3).any():
        raise ContractError("bad_logprob", f"{name}: a logprob is not finite or above 0")
    ends = [0, *(span.end for span in spans)]
    starts = [*(span.start for span in spans), len(token_ids)]
    if not spans or ends != starts or any(span.end <= span.start for span in spans):
        raise ContractError("bad_spans", f"{name}: version spans do not cover the completion")


def check_mask(name: str, mask: TokenMask, logprobs: Logprobs) -> None:
    """Raises ContractError unless the mask leaves a token to train and hides only tokens without a logprob."""
    if mask.dtype != np.bool_ or mask.shape != logprobs.shape:
        raise ContractError("bad_mask", f"{name}: {mask.dtype} {mask.shape} is no mask of {len(logprobs)} tokens")
    if not mask.any():
        raise ContractError("bad_mask", f"{name}: no token is left to train")
    if logprobs[~mask].any():
        raise ContractError("bad_mask", f"{name}: a masked token has a logprob, but the policy did not sample it")
