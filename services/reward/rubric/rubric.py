"""A tree of scorers makes one score per sample; the sample's task selects the tree."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.services.reward.rubric.combine import MemberValue, combine, member_weights, problem
from headrace.services.reward.rubric.refusal import is_finite_number
from headrace.services.reward.rubric.scorer_slot import Judged, ScorerSlot
from headrace.services.reward.scorer import Sample, Verdict
from headrace.services.reward.settings import CombinationTable, ScorerTable
from headrace.wire.errors import ConfigError
from headrace.wire.telemetry.reward_components import ADDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The score of one sample and what it was made of. Axis: completion = its tokens."""

    value: float | None
    """None = it abstained; `reason` gives the cause."""
    components: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    token_scores: NDArray[np.float32] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    """Versions that verdicts name themselves, by scorer."""
    answer_start: int | None = 0
    """Characters of its completion that are thoughts; None = there is no answer."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weight of each member in `value`, by component; 0 of one that abstained, and where a sum has no such weights."""


class Rubric:
    """Members and their combination; a member is a scorer in its slot, or an ensemble: a rubric of its own."""

    def __init__(
        self, table: CombinationTable, members: Sequence[tuple[ScorerTable, "ScorerSlot | Rubric"]], *, where: str
    ) -> None:
        """Raises ConfigError if the members cannot be combined so; `where` names the rubric."""
        names = [member.component for member, _ in members]
        if not names:
            raise ConfigError(f"{where}: at least one scorer is needed, e.g. [[reward.scorers]] name = 'numeric'")
        if len(set(names)) < len(names):
            raise ConfigError(f"{where}: two scorers have one name: {', '.join(names)}; give them a label each")
        if taken := {*names} & {*ADDED}:
            raise ConfigError(
                f"{where}: {', '.join(sorted(taken))} names a part of the reward: give the scorer another label"
            )
        self._table, self._members = table, tuple(members)
        wrong = problem(table, [_part(member, None) for member, _ in members])
        if wrong:
            raise ConfigError(f"{where}: {wrong}")

    @property
    def names(self) -> list[str]:
        """Components, in the order of the config."""
        return [table.component for table, _ in self._members]

    def slots(self) -> Iterator[ScorerSlot]:
        """Every scorer of the tree."""
        for _, member in self._members:
            if isinstance(member, Rubric):
                yield from member.slots()
            else:
                yield member

    def tables(self) -> Iterator[ScorerTable]:
        """The config of every scorer of the tree."""
        for table, member in self._members:
            if isinstance(member, Rubric):
                yield from member.tables()
            else:
                yield table

    def versions(self) -> dict[str, str]:
        """Scorer -> version."""
        found: dict[str, str] = {}
        for table, member in self._members:
            if isinstance(member, Rubric):
                found |= {f"{table.component}.{name}": version for name, version in member.versions().items()}
            else:
                found[table.component] = member.scorer.version
        return found

    async def score(self, samples: Sequence[Sample], *, patient: bool) -> list[Result]:
        """One result a sample, in order; all scorers work at the same time. Raises what `ScorerSlot.judge` raises.

        If one raises, the others are waited for: what they have begun is bounded, and their circuits record it.
        """
        asked = [_ask(member, samples, patient=patient) for _, member in self._members]
        found = await asyncio.gather(*asked, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        answers = [one for one in found if not isinstance(one, BaseException)]
        return [self._result([answer[number] for answer in answers]) for number in range(len(samples))]

    def _result(self, said: Sequence[Result]) -> Result:
        tables = [table for table, _ in self._members]
        parts = [_part(table, one.value) for table, one in zip(tables, said, strict=True)]
        value, weights = combine(self._table, parts), member_weights(self._table, parts)
        components: dict[str, float] = {}
        seconds: dict[str, float] = {}
        versions: dict[str, str] = {}
        reasons = []
        for table, one in zip(tables, said, strict=True):
            name = table.component
            if one.value is not None:
                components[name] = one.value
            components |= {f"{name}.{part}": number for part, number in one.components.items()}
            seconds |= {_under(name, part): number for part, number in one.seconds.items()}
            versions |= {_under(name, part): version for part, version in one.versions.items()}
            if one.reason:
                reasons.append(f"{name}: {one.reason}")
        return Result(
            value=value,
            components=components,
            reason="; ".join(reasons),
            seconds=seconds,
            versions=versions,
            token_scores=None if value is None else _token_scores(weights, said),
            weights=dict(zip(self.names, weights, strict=True)),
        )


def _token_scores(weights: Sequence[float], said: Sequence[Result]) -> NDArray[np.float32] | None:
    """Each member's, by the share that its value has in the whole."""
    pairs = zip(weights, said, strict=True)
    found = [one.token_scores * weight for weight, one in pairs if weight and one.token_scores is not None]
    if not found:
        return None
    # A token that only some of them score has those; one that none scores has none (NaN).
    unscored = np.all(np.isnan(found), axis=0)
    return np.where(unscored, np.nan, np.nansum(found, axis=0)).astype(np.float32)


def _under(name: str, part: str) -> str:
    """`name.part`; the name alone for the scorer's own."""
    return f"{name}.{part}" if part else name


async def _ask(member: "ScorerSlot | Rubric", samples: Sequence[Sample], *, patient: bool) -> list[Result]:
    if isinstance(member, Rubric):
        return await member.score(samples, patient=patient)
    judged: Judged = await member.judge(samples, patient=patient)
    return [_leaf(verdict, judged.seconds) for verdict in judged.verdicts]


def _leaf(verdict: Verdict, seconds: float) -> Result:
    return Result(
        value=None if verdict.value is None else float(verdict.value),
        components={name: float(number) for name, number in verdict.parts.items() if is_finite_number(number)},
        reason=verdict.reason,
        seconds={"": seconds},
        versions={"": verdict.version} if verdict.version else {},
        token_scores=verdict.token_scores,
    )


def _part(table: ScorerTable, value: float | None) -> MemberValue:
    return MemberValue(
        name=table.component,
        value=value,
        weight=table.weight,
        at_least=table.at_least,
        optional=table.optional,
    )


def digest(tables: Sequence[ScorerTable], combination: CombinationTable, versions: Mapping[str, str]) -> str:
    """Changes with the config of the scorers, their combination, and the version of any of them."""
    kept = combination.model_dump(mode="json", include=set(CombinationTable.model_fields))
    found = [[table.model_dump(mode="json") for table in tables], kept, dict(versions)]
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:12]
