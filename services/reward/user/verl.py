"""`verl:module:function`: verl's `compute_score`, unchanged.

`function(data_source, solution_str, ground_truth, extra_info=None, **options) -> float | dict` for one completion, or,
if it takes `solution_strs`, `function(data_sources, solution_strs, ground_truths, extra_infos, **options) -> list` for
a group. A dict's `score` is the score, its other numbers are shown beside it. Source: verl documentation, "Implement
Reward Function for Dataset", and its batch reward manager.

Of an episode `solution_str` is the policy's last message. verl decodes the whole response there, results of tools
included; a function that looks for the answer in the text then also finds what a tool returned, so that is not copied.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.user.scorer import Call, UserScorer, by_group, refused, verdict

_ONE = ("data_source", "solution_str", "ground_truth", "extra_info")
_MANY = ("data_sources", "solution_strs", "ground_truths", "extra_infos")


class VerlScorer(UserScorer):
    """One call a sample, or one a group for the batch form; the options are verl's `reward_kwargs`."""

    def __init__(self, target: str, options: Mapping[str, object], context: Context) -> None:
        super().__init__("headrace.services.reward.user.child.verl:serve", {"target": target}, context)
        self._options = dict(options)

    @property
    def _is_batched(self) -> bool:
        return self._signature is not None and "solution_strs" in self._signature.parameters

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Whether the row has what verl's rows have, and the function takes it; it is not called."""
        found = refused(self._signature, **dict.fromkeys(_MANY if self._is_batched else _ONE), **self._options)
        if found:
            return f"it is called with {', '.join(_MANY if self._is_batched else _ONE)} and the options: {found}"
        if columns.get("data_source") is None:
            return "the row has no data_source"
        if _ground_truth(columns) is None:
            return "the row has neither reward_model.ground_truth nor an answer"
        return None

    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        if self._is_batched:
            return [
                Call(job={"keywords": self._many([samples[one] for one in group])}, positions=group)
                for group in by_group(samples)
            ]
        return [
            Call(job={"keywords": dict(zip(_ONE, _row(one), strict=True)) | self._options}, positions=(position,))
            for position, one in enumerate(samples)
        ]

    def _many(self, samples: Sequence[Sample]) -> dict[str, object]:
        columns = zip(*(_row(one) for one in samples), strict=True)
        return {name: list(values) for name, values in zip(_MANY, columns, strict=True)} | self._options

    def _read(self, answer: Mapping[str, Any]) -> list[Verdict]:
        return [verdict(one["score"], one["parts"]) for one in answer["scores"]]


def _row(sample: Sample) -> tuple[object, str, object, object]:
    columns = sample.columns
    return columns.get("data_source"), sample.completion, _ground_truth(columns), columns.get("extra_info")


def _ground_truth(columns: Mapping[str, object]) -> object:
    """The ground truth of verl's own column, else the answer that `[data.columns]` names."""
    column = columns.get("reward_model")
    if isinstance(column, str):
        with contextlib.suppress(ValueError):
            column = json.loads(column)
    found = column.get("ground_truth") if isinstance(column, Mapping) else None
    return columns.get("answer") if found is None else found
