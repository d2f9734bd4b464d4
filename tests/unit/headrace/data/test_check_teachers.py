"""A teacher that would read other tokens than the policy wrote is refused, and what differs first is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from headrace.config.schema import RunFile
from headrace.data.check_rows import check_rows
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths

CHARACTERS = "abcd"
TEMPLATE = "{% for m in messages %}a{{ m.content }}{% endfor %}{% if add_generation_prompt %}b{% endif %}"


def run_with(folder: Path, teacher: Tokenizer, template: str = TEMPLATE, *, messages: bool = True) -> RunFile:
    """A prepared run of one prompt."""
    shape = Shape(hidden=16, intermediate=16, layers=1, heads=2, kv_heads=1, head_dim=8, context=256)
    write_model(folder / "policy", character_tokenizer(CHARACTERS), shape, seed=0, chat_template=TEMPLATE)
    write_model(folder / "teacher", teacher, shape, seed=1, chat_template=template)
    asked = json.dumps([{"role": "user", "content": "cd"}]) if messages else None
    row = {"sample_id": "s0", "token_ids": [2, 4, 5, 3], "text": "acdb", "messages": asked, "columns": "{}"}
    for file in (RunPaths(folder).prompts, RunPaths(folder).eval_prompts):
        prompts.write(file, [row])
    scorer = {"name": "teacher", "options": {"path": str(folder / "teacher")}}
    tables: dict[str, Any] = {"data": {"path": "p.jsonl"}, "model": {"path": folder / "policy"}}
    return RunFile.model_validate(tables | {"reward": {"scorers": [scorer]}})


def merging(characters: str) -> Tokenizer:
    """The same vocabulary, but another id for a text."""
    found = character_tokenizer(characters)
    state = json.loads(found.to_str())
    state["pre_tokenizer"]["pattern"] = {"Regex": ".."}
    return Tokenizer.from_str(json.dumps(state))


REFUSED = {
    "token 4, 'c', is 5 there": (character_tokenizer("abdc"), TEMPLATE),
    "token 5, 'd', is None there": (character_tokenizer("abc"), TEMPLATE),
    r"prompts\.parquet, sample s0: token 0 is \[2\] for the policy, \[0\] there": (merging(CHARACTERS), TEMPLATE),
    "the chat template writes 'acdb', there 'cd'": (
        character_tokenizer(CHARACTERS),
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    ),
    "the teacher no chat template": (character_tokenizer(CHARACTERS), ""),
}


@pytest.mark.parametrize("said", REFUSED)
def test_a_teacher_with_another_tokenizer_or_template_is_refused(tmp_path: Path, said: str) -> None:
    with pytest.raises(ConfigError, match=f"scorer 'teacher' .*{said}; take a teacher"):
        check_rows(run_with(tmp_path, *REFUSED[said]), tmp_path)


def test_more_tokens_and_a_template_that_no_prompt_uses_do_not_matter(tmp_path: Path) -> None:
    check_rows(run_with(tmp_path / "a", character_tokenizer(CHARACTERS + "e")), tmp_path / "a")
    check_rows(run_with(tmp_path / "b", character_tokenizer(CHARACTERS), "", messages=False), tmp_path / "b")
