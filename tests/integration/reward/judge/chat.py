"""A real local chat-completions server whose judge is a function of the blocks that it is shown."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.services.reward.judge.pairwise import PairwiseJudge
from headrace.services.reward.judge.single import Judge
from headrace.services.reward.scorer import Context, Sample
from headrace.services.reward.scorers.registry import build_scorer
from tests.integration.reward.endpoint.scripted import Answer, Reply, Request, Scripted, ok

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
Verdict = Callable[[Mapping[str, str]], Mapping[str, Any]]


def blocks(request: Request) -> dict[str, str]:
    """What stands in the blocks, as an honest reader takes them."""
    text = request.body["messages"][-1]["content"]
    found = re.findall(r"(?s)<<<BEGIN (\w+) (\w+)>>>\n(.*?)\n<<<END \1 \2>>>", text)
    return {name: "\n".join(line[2:] for line in content.split("\n")) for name, _, content in found}


def said(content: str, *, finish: str = "stop", **more: Any) -> Answer:
    message = {"role": "assistant", "content": content}
    return ok({"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": USAGE} | more)


def judging(verdict: Verdict) -> Reply:
    """Answers each request with the verdict on its blocks."""
    return lambda request: said(json.dumps({"reasoning": "because"} | dict(verdict(blocks(request)))))


def grades(grade: int) -> Answer:
    return said(json.dumps({"reasoning": "because", "score": grade}))


def judge(server: Scripted, **options: Any) -> Judge:
    return _build("judge", server, options)  # type: ignore[no-any-return]


def pairwise(server: Scripted, **options: Any) -> PairwiseJudge:
    return _build("pairwise_judge", server, options)  # type: ignore[no-any-return]


def _build(name: str, server: Scripted, options: Mapping[str, Any]) -> Any:
    context = Context(component=name, timeout_s=60.0, allow_hosts=(f"127.0.0.1:{server.port}",))
    given = {"url": f"{server.url}/v1", "model": "m", "attempt_s": 10.0, "retries": 2, "canaries_every": 0}
    return build_scorer(name, given | dict(options), context)


def sample(completion: str, *, group: str = "g", prompt: str = "1+2=", **columns: Any) -> Sample:
    return Sample(prompt=prompt, completion=completion, columns=columns, group=group)
