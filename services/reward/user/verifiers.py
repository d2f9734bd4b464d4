"""`verifiers:taskset` or `verifiers:taskset:reward`: a `verifiers` v1 environment scores completions and episodes.

A task is made of the row's columns (the fields of the taskset's TaskData), a trace of prompt and completion (of an
episode a node for each of its messages), and `Task.score` runs its rewards, metrics and plugged judges without a
runtime. The score is the trace's weighted sum, or one reward alone where it is named. Options are those of the
taskset's config. All that knows the package is in this file. Source: verifiers 0.4, `verifiers.v1` (task.py, trace.py,
graph.py).
"""

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from pydantic import BaseModel

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.user.calls import numbers, settled, source_version
from headrace.services.reward.user.messages import tokens_of, with_call_ids
from headrace.services.reward.user.scorer import PROMPT_MESSAGES, Call, UserScorer, verdict
from headrace.wire.errors import ConfigError


def build(target: str, options: Mapping[str, object], context: Context) -> Scorer:
    """The scorer of a taskset; raises ConfigError without the package."""
    if importlib.util.find_spec("verifiers") is None:
        raise ConfigError(f"{context.component}: the package verifiers is missing: pip install 'headrace[verifiers]'")
    return VerifiersScorer(target, options, context)


class _Job(TypedDict, total=False):
    about: bool
    prompt: str | list[dict[str, object]]
    completion: str
    said: list[dict[str, object]]
    """The messages of an episode from the policy's first on; empty for a completion."""
    turns: list[bool]
    """Which of them the policy said."""
    tokens: list[dict[str, Any]]
    """Ids, mask and usage of each of them, see `tokens_of`."""
    columns: dict[str, object]
    truncated: bool
    prompt_ids: list[int]
    completion_ids: list[int]


class VerifiersScorer(UserScorer):
    """One call a sample."""

    def __init__(self, target: str, options: Mapping[str, object], context: Context) -> None:
        taskset, _, reward = target.partition(":")
        arguments = {"taskset": taskset, "reward": reward, "options": dict(options)}
        super().__init__("headrace.services.reward.user.verifiers:serve", arguments, context)
        self._needed: tuple[str, ...] = ()

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Whether the row has the fields that the task's data needs."""
        missing = [name for name in self._needed if columns.get(name) is None]
        return f"the task's data needs {', '.join(missing)}, which the row has not" if missing else None

    def _learn(self, about: Mapping[str, Any]) -> None:
        self._needed, self.version = tuple(about["needed"]), about["version"]

    def _calls(self, samples: Sequence[Sample]) -> list[Call]:
        return [Call(job=_job(sample), positions=(position,)) for position, sample in enumerate(samples)]

    def _read(self, answer: Mapping[str, Any]) -> list[Verdict]:
        return [verdict(answer["value"], answer["parts"])]


def _job(sample: Sample) -> dict[str, object]:
    job: dict[str, object] = {
        "prompt": sample.columns.get(PROMPT_MESSAGES) or sample.prompt,
        "completion": sample.completion,
        "said": [],
        "columns": {key: value for key, value in sample.columns.items() if value is not None},
        "truncated": sample.truncated,
        "prompt_ids": [] if sample.prompt_ids is None else sample.prompt_ids.tolist(),
        "completion_ids": [] if sample.completion_ids is None else sample.completion_ids.tolist(),
    }
    conversation = sample.conversation
    if conversation is None:
        return job
    messages, first = [_known(one) for one in with_call_ids(conversation.messages)], conversation.first
    return job | {
        "prompt": messages[:first] or job["prompt"],
        "said": messages[first:],
        "turns": [turn is not None for turn in conversation.turns[first:]],
        "tokens": tokens_of(sample, conversation),
    }


def _known(message: dict[str, object]) -> dict[str, object]:
    """The message with a role that the package has: everything else that an environment says goes to the policy."""
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role if role in ("system", "assistant", "tool") else "user"}


def serve(taskset: str, reward: str, options: dict[str, object]) -> Callable[[_Job], dict[str, object]]:
    """What a worker runs; raises ConfigError for a taskset that cannot score a completion alone."""
    import verifiers.v1 as vf

    try:
        kind = vf.task_type(taskset)
        config = vf.taskset_config_type(taskset).model_validate({**options, "id": taskset}).task
        probe = kind(kind.data_type().model_construct(), config)
        signals = [*probe.hooks("reward"), *(judge.score for judge in probe.plugged_judges())]
    except Exception as error:  # It is the user's code that is imported and asked: it may raise anything.
        raise ConfigError(
            f"{taskset}: {type(error).__name__}: {error}; a taskset is an installed package or a module in "
            "reward.path that exports its Taskset in __all__"
        ) from error
    _check(taskset, kind, signals)
    if reward and reward not in (names := [one.__name__ for one in probe.hooks("reward")]):
        raise ConfigError(f"{taskset} has no reward {reward!r}; there are {', '.join(names)}")
    fields = kind.data_type().model_fields
    needed = [name for name, field in fields.items() if field.is_required() and name != "prompt"]

    def answer(job: _Job) -> dict[str, object]:
        if "about" in job:
            return {"needed": needed, "version": source_version(kind)}
        task = kind(_data(kind.data_type(), job), config)
        if reward:
            every = task.hooks
            task.hooks = lambda what: [one for one in every(what) if what != "reward" or one.__name__ == reward]
            task.plugged_judges = list
        return _scored(task, _trace(task, job))

    return answer


def _check(taskset: str, kind: Any, signals: Sequence[Callable[..., object]]) -> None:
    """Raises ConfigError for a taskset that cannot score a completion without a runtime."""
    import verifiers.v1 as vf

    environment = vf.environment_class(taskset)
    own = [name for name in ("setup", "finalize") if getattr(kind, name) is not getattr(vf.Task, name)]
    own += [name for name in ("run", "finalize") if getattr(environment, name) is not getattr(vf.SingleAgentEnv, name)]
    if kind.toolsets.__func__ is not vf.Task.toolsets.__func__:
        own.append("toolsets")
    if own or kind.NEEDS_CONTAINER:
        raise ConfigError(
            f"{taskset}: it has {', '.join(own) or 'NEEDS_CONTAINER'} of its own, which needs a runtime; only "
            "single-turn environments that score a completion alone can be used"
        )
    for signal in signals:
        runtime = inspect.signature(signal).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise ConfigError(f"{taskset}: its reward {signal.__name__} needs a runtime, and here there is none")
    if not signals:
        raise ConfigError(f"{taskset}: its task has no reward")


def _data(kind: type[BaseModel], job: _Job) -> BaseModel:
    """The task's data: its fields out of the columns, prompt and system prompt as the policy was given them."""
    values = {name: job["columns"][name] for name in kind.model_fields if name in job["columns"]}
    if "id" in values:
        values["id"] = str(values["id"])
    prompt = job["prompt"]
    if not isinstance(prompt, str):
        if prompt[0]["role"] == "system" and len(prompt) > 1:
            values["system_prompt"], prompt = prompt[0]["content"], prompt[1:]
        if len(prompt) == 1 and prompt[0]["role"] == "user" and isinstance(prompt[0]["content"], str):
            prompt = prompt[0]["content"]
    return kind.model_validate({**values, "prompt": prompt})


def _trace(task: Any, job: _Job) -> Any:
    """Prompt and completion, or all messages of an episode, as a finished trace.

    The ids of a completion lie at its two nodes, those of an episode at the policy's messages.
    """
    import verifiers.v1 as vf
    from verifiers.v1.state import state_cls

    data = task.data
    asked = [vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else list(data.prompt)
    if data.system_prompt:
        asked.insert(0, vf.SystemMessage(content=data.system_prompt))
    nodes = [vf.MessageNode(parent=number - 1 if number else None, message=one) for number, one in enumerate(asked)]
    last = "length" if job["truncated"] else "stop"
    if job["said"]:
        calls = _played(nodes, job, last)
    else:
        ids = job["completion_ids"]
        nodes[0].token_ids, nodes[0].mask = job["prompt_ids"], [False] * len(job["prompt_ids"])
        said = vf.AssistantMessage(content=job["completion"])
        nodes.append(
            vf.MessageNode(parent=len(nodes) - 1, message=said, sampled=True, token_ids=ids, mask=[True] * len(ids))
        )
        usage = vf.Usage(prompt_tokens=len(job["prompt_ids"]), completion_tokens=len(ids))
        calls = [vf.ModelCall(node=len(nodes) - 1, finish_reason=last, usage=usage)]
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        state=state_cls(type(task))(),
        nodes=nodes,
        calls=calls,
        is_completed=True,
        ok=True,
    )


def _played(nodes: list[Any], job: _Job, last: str) -> list[Any]:
    """Appends the messages of an episode; returns the calls of the model, the last of which ended by `last`."""
    import verifiers.v1 as vf
    from pydantic import TypeAdapter

    read, calls = TypeAdapter(vf.Message).validate_python, []
    for message, sampled, tokens in zip(job["said"], job["turns"], job["tokens"], strict=True):
        node = vf.MessageNode(parent=len(nodes) - 1 if nodes else None, message=read(message), sampled=sampled)
        node.token_ids, node.mask = tokens.get("token_ids", []), tokens.get("mask", [])
        if sampled:
            call = vf.ModelCall(node=len(nodes), finish_reason="tool_calls" if message["tool_calls"] else "stop")
            if "usage" in tokens:
                call.usage = vf.Usage(prompt_tokens=tokens["usage"][0], completion_tokens=tokens["usage"][1])
            calls.append(call)
        nodes.append(node)
    calls[-1].finish_reason = last
    return calls


def _scored(task: Any, trace: Any) -> dict[str, object]:
    settled(task.score(trace))
    unscored = [name for name, one in trace.rewards.items() if one is None]
    if unscored or not trace.rewards:
        raise ValueError(f"not scored: {', '.join(unscored) or 'no reward'}")
    parts = {name: one.score for name, one in trace.rewards.items()}
    return {"value": trace.reward, "parts": numbers(parts | trace.metrics)}
