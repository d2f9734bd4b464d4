"""The annotators' current verdicts, accumulated from the vote records. Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import JsonValue

from headrace.services.orchestrator.annotation.agreement import krippendorff_alpha, percent_agreement
from headrace.services.orchestrator.annotation.pairs import CompletionPair, Record
from headrace.wire.api.annotation import Agreement, AnnotationSummary, AnnotatorCounts, PairCounts

Choice = Literal["left", "right", "tie", "skip"]
CHOICES: tuple[str, ...] = get_args(Choice)
_ENOUGH = 3
"""Target number of verdicts per pair; more are requested only when no other pair is left."""


class Ballots:
    """Pairs with at least one vote, and each annotator's choice."""

    def __init__(self) -> None:
        self.pairs: dict[str, CompletionPair] = {}
        self._votes: dict[str, dict[str, str]] = {}
        """Pair -> annotator -> choice."""
        self._of: dict[str, dict[str, str]] = {}
        """Annotator -> pair -> choice, in the order in which they were made."""

    def apply(self, record: Record) -> None:
        """Applies one record of the vote log."""
        if record["kind"] == "pair":
            pair = CompletionPair.from_record(record)
            self.pairs[pair.pair_id] = pair
            return
        pair_id, annotator = str(record["pair"]), str(record["annotator"])
        if record["kind"] == "vote":
            self._votes.setdefault(pair_id, {})[annotator] = str(record["choice"])
            self._of.setdefault(annotator, {})[pair_id] = str(record["choice"])
        else:
            self._votes.get(pair_id, {}).pop(annotator, None)
            self._of.get(annotator, {}).pop(pair_id, None)

    def choice(self, pair_id: str, annotator: str) -> str | None:
        """The annotator's choice for the pair; None without one."""
        return self._votes.get(pair_id, {}).get(annotator)

    def seen(self, annotator: str) -> dict[str, str]:
        """Pair -> choice of one annotator, latest last, including skips."""
        return self._of.get(annotator, {})

    def verdicts(self, pair_id: str) -> list[str]:
        """Verdicts of all annotators on the pair, without skips."""
        return [choice for choice in self._votes.get(pair_id, {}).values() if choice != "skip"]

    def shared(self, annotator: str) -> tuple[list[str], list[str]]:
        """Pairs judged only by others: those still short of verdicts (fewest first), and the rest."""
        seen = self.seen(annotator)
        counts = {one: len(self.verdicts(one)) for one in self.pairs if one not in seen}
        found = sorted((one for one, count in counts.items() if count), key=lambda one: counts[one])
        return [one for one in found if counts[one] < _ENOUGH], [one for one in found if counts[one] >= _ENOUGH]

    def wants_shared(self, annotator: str) -> bool:
        """Whether the next pair should be one judged by others: until half of the annotator's pairs overlap."""
        seen = self.seen(annotator)
        overlap = sum(any(other != annotator for other in self._votes[one]) for one in seen)
        return 2 * overlap <= len(seen)

    def ranked(self) -> Iterator[Record]:
        """Rows for the stages reward_model and dpo: pairs in which one side has a strict majority of the verdicts.

        Pairs of episodes stay in the votes alone: those stages train one answer to one prompt, and would train what
        tools wrote.
        """
        for pair_id, pair in self.pairs.items():
            if pair.is_episode:
                continue
            verdicts = Counter(self.verdicts(pair_id))
            for chosen, rejected in (("left", "right"), ("right", "left")):
                if 2 * verdicts[chosen] > verdicts.total():
                    yield _row(pair, chosen, rejected, verdicts)

    def summary(self) -> AnnotationSummary:
        """Counts and agreement."""
        units = [self.verdicts(pair_id) for pair_id in self.pairs]
        choices = Counter(choice for votes in self._votes.values() for choice in votes.values())
        people = (_person(name, Counter(said.values())) for name, said in sorted(self._of.items()) if said)
        return AnnotationSummary(
            votes=choices.total(),
            choices={choice: choices[choice] for choice in CHOICES},
            pairs=PairCounts(judged=sum(map(bool, units)), ranked=sum(1 for _ in self.ranked())),
            annotators=tuple(people),
            agreement=Agreement(
                pairs=sum(len(unit) > 1 for unit in units),
                percent=percent_agreement(units),
                alpha=krippendorff_alpha(units),
            ),
        )


def _person(name: str, choices: Counter[str]) -> AnnotatorCounts:
    return AnnotatorCounts(name=name, judged=choices.total() - choices["skip"], skipped=choices["skip"])


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
