"""`trl:module:function`: a reward function as TRL's GRPOTrainer calls it, unchanged.

`function(prompts, completions, completion_ids, **columns) -> list[float | None]`, sync or async, once a group; None
means that it does not apply to that sample. Source: TRL documentation, GRPO Trainer, "Using a custom reward function".
`trainer_state` is absent: scorers know no trainer.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter
from typing import Any

from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.user.messages import chat_of
from headrace.services.reward.user.scorer import PROMPT_MESSAGES, Call, UserScorer, by_group, verdict

_OURS = frozenset({"prompts", "completions", "completion_ids", "log_extra", "log_metric"})
_NEVER_A_COLUMN = frozenset({"prompt", "completion", PROMPT_MESSAGES}) | _OURS


class TrlScorer(UserScorer):
    """One call a group; columns come as lists, prompts as messages where the data's prompts are.

    Of an episode the prompt is what was asked before the policy's first message, the completion all messages from there
    on: those of the policy with `tool_calls`, those of tools with their `name`, as in TRL's own loop of tools.
    """

    def __init__(self, target: str, options: Mapping[str, object], context: Context) -> None:
        arguments = {"target": target, "options": dict(options)}
        super().__init__("headrace.services.reward.user.child.trl:serve", arguments, context)
        self._options = dict(options)

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Whether all that the function needs is there; it is not called."""
        parameters = self._signature.parameters.values() if self._signature else ()
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        needed = [one.name for one in parameters if one.kind in named and one.default is one.empty]
        there = _OURS | _columns(columns).keys() | self._options.keys()
        missing = [name for name in needed if name not in there]
        if missing == ["trainer_state"]:
            return "it needs trainer_state, but scorers know no trainer; give it a default"
        if missing:
            have = ", ".join(sorted(_columns(columns))) or "none"
            return f"it needs {', '.join(missing)}, but the row's columns are {have}"
        return None

    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        return [Call(job=_job([samples[one] for one in group]), positions=group) for group in by_group(samples)]

    def _read(self, answer: Mapping[str, Any]) -> list[Verdict]:
        parts = answer["metrics"]
        return [
            Verdict.abstain("it returned None: not applicable") if value is None else verdict(value, parts)
            for value in answer["values"]
        ]


def _columns(columns: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in columns.items() if key not in _NEVER_A_COLUMN}


def _job(samples: Sequence[Sample]) -> dict[str, object]:
    chats = [chat_of(one) for one in samples]
    is_chat = None not in chats
    said: list[object] = [one.completion for one in samples]
    names = dict.fromkeys(name for one in samples for name in _columns(one.columns))
    ids = [None if one.completion_ids is None else one.completion_ids.tolist() for one in samples]
    return {
        "prompts": [one.asked for one in chats if one] if is_chat else [one.prompt for one in samples],
        "completions": [one.said for one in chats if one] if is_chat else said,
        "completion_ids": None if None in ids else ids,
        "columns": {name: [one.columns.get(name) for one in samples] for name in names},
    }
