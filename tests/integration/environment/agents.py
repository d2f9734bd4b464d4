"""Programs that are agents, and what plays them: a template with tools, replicas by script, the real sandbox."""

import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.model.tiny_models import END
from headrace.services.environment.agent.process import AgentConfig
from headrace.wire.contracts import Rollout
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import Stage, played, stage
from tests.integration.environment.stage import play as play_group

TOOLS_TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }}" + END + "{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    + END
    + "{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
HEAD = """
import json, os, sys, time
from openai import OpenAI
client = OpenAI()
USER = {"role": "user", "content": "q"}
def ask(*messages, **more):
    return client.chat.completions.create(model="policy", messages=list(messages), **more)
def said(answer):
    return answer.choices[0].message.model_dump(exclude_none=True)
"""
"""What most programs begin with."""


def echo(text: str, request: pb.SampleRequest) -> str:
    return f"a{request.turn}"


@asynccontextmanager
async def agent_stage(
    folder: Path,
    program: str,
    says: Callable[[str, pb.SampleRequest], str | None] = echo,
    *,
    files: dict[str, str] | None = None,
    head: str = HEAD,
    command: tuple[str, ...] = ("python", "agent.py"),
    reward_command: tuple[str, ...] = (),
    reward_file: str = "",
    **more: Any,
) -> AsyncIterator[Stage]:
    """A stage whose agent is `program`, behind `head`; `files` lie beside it."""
    code = folder / "code"
    for name, text in {"agent.py": head + textwrap.dedent(program), **(files or {})}.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    agent = AgentConfig(command=command, reward_command=reward_command, reward_file=reward_file)
    given = {"path": code, "template": TOOLS_TEMPLATE, **more}
    async with stage(folder, says, agent=agent, **given) as it:
        yield it


def play(
    it: Stage, task: dict[str, Any] | None = None, *, index: int = 0, **sampling: Any
) -> Coroutine[Any, Any, Rollout]:
    return play_group(it, played(task or {"prompt": "go"}, **sampling), index, 1)
