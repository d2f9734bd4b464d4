"""What a judge has cost: every answer counts once, even one that is discarded."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.services.reward import metrics


@dataclass(slots=True)
class Cost:
    """Sums since the start."""

    judge: str
    price_in: float
    """Per million tokens, in any currency."""
    price_out: float
    answers: int = 0
    unmetered: int = 0
    """Answers that did not report their tokens."""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def money(self) -> float:
        """The cost so far, in the currency of the prices."""
        return self._price(self.tokens_in, self.tokens_out)

    def add(self, answer: object) -> None:
        """Counts one answer of chat completions by its `usage`."""
        self.answers += 1
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        tokens_in, tokens_out = (_count(usage, key) for key in ("prompt_tokens", "completion_tokens"))
        if tokens_in is None or tokens_out is None:
            self.unmetered += 1
            metrics.JUDGE_UNMETERED.labels(self.judge).inc()
            return
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        metrics.JUDGE_TOKENS.labels(self.judge, "in").inc(tokens_in)
        metrics.JUDGE_TOKENS.labels(self.judge, "out").inc(tokens_out)
        metrics.JUDGE_COST.labels(self.judge).inc(self._price(tokens_in, tokens_out))

    def _price(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6


def _count(usage: object, key: str) -> int | None:
    count = usage.get(key) if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) and count >= 0 else None
