"""Checks that a teacher reads what the policy writes: tokenizer and chat template of both, on the run's own prompts."""

import json
from pathlib import Path

from headrace.wire.errors import ConfigError
from headrace.wire.rendering.chat_template import ChatTemplate
from headrace.wire.rendering.tokenizers import load_tokenizer
from headrace.wire.rundir import prompts

_COMPARED = 64


def check_teacher(component: str, teacher: Path, policy: Path, file: Path) -> None:
    """Raises ConfigError naming the first token or prompt that differs, and the way out."""
    ours, theirs = load_tokenizer(policy), load_tokenizer(teacher)

    def refuse(what: str) -> ConfigError:
        return ConfigError(
            f"the teacher of the scorer {component!r} ({teacher}) does not read what the policy ({policy}) writes: "
            f"{what}; take a teacher with the policy's tokenizer, and give both folders the same chat_template.jinja"
        )

    known = theirs.get_vocab()
    for token, number in sorted(ours.get_vocab().items(), key=lambda one: one[1]):
        if known.get(token) != number:
            raise refuse(f"the policy's token {number}, {token!r}, is {known.get(token)} there")
    table = prompts.read(file, "sample_id", "text", "messages").slice(0, _COMPARED).to_pylist()
    for row in table:
        place = f"{file.name}, sample {row['sample_id']}"
        mine, other = (list(one(row["text"], add_special_tokens=False)["input_ids"]) for one in (ours, theirs))
        if mine != other:
            at = next((at for at, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), len(other))
            raise refuse(f"{place}: token {at} is {mine[at : at + 1]} for the policy, {other[at : at + 1]} there")
        if row.get("messages"):
            if not getattr(theirs, "chat_template", None):
                raise refuse(f"{place} has messages, and the teacher no chat template")
            messages = json.loads(row["messages"])
            written, there = (ChatTemplate(one).text(messages, (), asks=True) for one in (ours, theirs))
            if written != there:
                raise refuse(f"{place}: the chat template writes {written[-60:]!r}, there {there[-60:]!r}")
