"""The annotators' current verdicts, accumulated from the vote records. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from headrace.services.orchestrator.annotation.pairs import CompletionPair, Record

Choice = Literal["left", "right", "tie", "skip"]


class Ballots:
    """Pairs with at least one vote, and each annotator's choice."""

    def __init__(self) -> None:
        self.pairs: dict[str, CompletionPair] = {}
        self._of: dict[str, dict[str, str]] = {}
        """Annotator -> pair -> choice, in the order in which they were made."""

    def apply(self, record: Record) -> None:
        """Applies one record of the vote log."""
        if record["kind"] == "pair":
            pair = CompletionPair.from_record(record)
            self.pairs[pair.pair_id] = pair
            return
        choices = self._of.setdefault(str(record["annotator"]), {})
        if record["kind"] == "vote":
            choices[str(record["pair"])] = str(record["choice"])
        else:
            choices.pop(str(record["pair"]), None)

    def seen(self, annotator: str) -> dict[str, str]:
        """Pair -> choice of one annotator, latest last, including skips."""
        return self._of.get(annotator, {})

    def verdicts(self) -> dict[str, Counter[str]]:
        """Pair -> verdicts of all annotators, without skips; pairs with the fewest verdicts first."""
        found = {pair_id: Counter[str]() for pair_id in self.pairs}
        for choices in self._of.values():
            for pair_id, choice in choices.items():
                if choice != "skip":
                    found[pair_id][choice] += 1
        return dict(sorted(found.items(), key=lambda one: one[1].total()))

    def ranked(self) -> Iterator[Record]:
        """Rows for the stages reward_model and dpo: pairs in which one side has a strict majority of the verdicts.

        Pairs of episodes stay in the votes alone: those stages train one answer to one prompt, and would train what
        tools wrote.
        """
        for pair_id, verdicts in self.verdicts().items():
            pair = self.pairs[pair_id]
            if pair.is_episode:
                continue
            for chosen, rejected in (("left", "right"), ("right", "left")):
                if 2 * verdicts[chosen] > verdicts.total():
                    yield _row(pair, chosen, rejected, verdicts)


def _row(pair: CompletionPair, chosen: str, rejected: str, verdicts: Counter[str]) -> Record:
    texts = {"left": pair.left.text, "right": pair.right.text}
    return {
        "prompt": pair.prompt if isinstance(pair.prompt, str) else list(pair.prompt),
        "chosen": _answer(pair, texts[chosen]),
        "rejected": _answer(pair, texts[rejected]),
        "pair": pair.pair_id,
        "step": pair.step,
        "sample_id": pair.sample_id,
        "votes": {"chosen": verdicts[chosen], "rejected": verdicts[rejected], "tie": verdicts["tie"]},
    }


def _answer(pair: CompletionPair, text: str) -> JsonValue:
    """The answer in the prompt's form (text or messages): the stages render both the same way."""
    return text if isinstance(pair.prompt, str) else [{"role": "assistant", "content": text}]
