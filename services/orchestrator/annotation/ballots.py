"""What annotators have said so far, as the acts in the votes add up to it. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from services.orchestrator.annotation.agreement import krippendorff_alpha, percent_agreement
from services.orchestrator.annotation.pairs import Message, Pair

Choice = Literal["left", "right", "tie", "skip"]
CHOICES: tuple[str, ...] = get_args(Choice)
_ENOUGH = 3
"""Verdicts on one pair; more are asked for only when there is nothing else."""


class Ballots:
    """Pairs that somebody has judged, and who said what."""

    def __init__(self) -> None:
        self.pairs: dict[str, Pair] = {}
        self._votes: dict[str, dict[str, str]] = {}
        """Pair -> annotator -> choice."""
        self._of: dict[str, dict[str, str]] = {}
        """Annotator -> pair -> choice, in the order in which they were made."""

    def apply(self, record: Mapping[str, Any]) -> None:
        """One line of the votes."""
        if record["kind"] == "pair":
            pair = Pair.from_record({key: value for key, value in record.items() if key != "kind"})
            self.pairs[pair.pair_id] = pair
            return
        pair_id, annotator = record["pair"], record["annotator"]
        if record["kind"] == "vote":
            self._votes.setdefault(pair_id, {})[annotator] = record["choice"]
            self._of.setdefault(annotator, {})[pair_id] = record["choice"]
        else:
            self._votes.get(pair_id, {}).pop(annotator, None)
            self._of.get(annotator, {}).pop(pair_id, None)

    def choice(self, pair_id: str, annotator: str) -> str | None:
        """What the annotator said of the pair."""
        return self._votes.get(pair_id, {}).get(annotator)

    def seen(self, annotator: str) -> dict[str, str]:
        """Pair -> choice of one annotator, the latest last; skipped ones are among them."""
        return self._of.get(annotator, {})

    def verdicts(self, pair_id: str) -> list[str]:
        """Of all annotators, without those who skipped it."""
        return [choice for choice in self._votes.get(pair_id, {}).values() if choice != "skip"]

    def shared(self, annotator: str) -> tuple[list[str], list[str]]:
        """Pairs that only others have judged: those that want a further verdict (fewest first), and the rest."""
        seen = self.seen(annotator)
        counts = {one: len(self.verdicts(one)) for one in self.pairs if one not in seen}
        found = sorted((one for one, count in counts.items() if count), key=lambda one: counts[one])
        return [one for one in found if counts[one] < _ENOUGH], [one for one in found if counts[one] >= _ENOUGH]

    def wants_shared(self, annotator: str) -> bool:
        """Whether the next one should be a pair that others have judged: until half of the annotator's are."""
        seen = self.seen(annotator)
        overlap = sum(any(other != annotator for other in self._votes[one]) for one in seen)
        return 2 * overlap <= len(seen)

    def ranked(self) -> Iterator[dict[str, Any]]:
        """Rows for the stages reward_model and dpo: pairs for which more than half of the verdicts are one side."""
        for pair_id, pair in self.pairs.items():
            verdicts = Counter(self.verdicts(pair_id))
            for chosen, rejected in (("left", "right"), ("right", "left")):
                if 2 * verdicts[chosen] > verdicts.total():
                    yield _row(pair, chosen, rejected, verdicts)

    def summary(self) -> dict[str, Any]:
        """Counts and agreement, as JSON values."""
        units = [self.verdicts(pair_id) for pair_id in self.pairs]
        choices = Counter(choice for votes in self._votes.values() for choice in votes.values())
        return {
            "votes": choices.total(),
            "choices": {choice: choices[choice] for choice in CHOICES},
            "pairs": {"judged": sum(map(bool, units)), "ranked": sum(1 for _ in self.ranked())},
            "annotators": [_person(name, Counter(said.values())) for name, said in sorted(self._of.items()) if said],
            "agreement": {
                "pairs": sum(len(unit) > 1 for unit in units),
                "percent": percent_agreement(units),
                "alpha": krippendorff_alpha(units),
            },
        }


def _person(name: str, choices: Counter[str]) -> dict[str, Any]:
    return {"name": name, "judged": choices.total() - choices["skip"], "skipped": choices["skip"]}


def _row(pair: Pair, chosen: str, rejected: str, verdicts: Counter[str]) -> dict[str, Any]:
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


def _answer(pair: Pair, text: str) -> str | list[Message]:
    """In the prompt's own form: the stages render both by one rule."""
    return text if isinstance(pair.prompt, str) else [{"role": "assistant", "content": text}]
