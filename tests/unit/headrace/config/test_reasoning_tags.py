"""The tags of thoughts are those of the model's chat template, or the run is refused."""

from pathlib import Path

import pytest

from headrace.config.resolve import resolve
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.preparation.input_checks import check_input
from headrace.wire.errors import ConfigError

SHAPE = Shape(context=64, layers=1, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=16)


@pytest.mark.parametrize(
    ("template", "tags", "way_out"),
    [
        ("{{ messages[0].content }}<think>", "", None),
        ("{{ messages[0].content }}", "", None),
        ("{# [THINK] and [/THINK] #}", "", r'\["\[THINK\]", "\[/THINK\]"\]'),
        ("<seed:think></seed:think>", "", "<seed:think>"),
        ("<seed:think></seed:think>", '["<seed:think>", "</seed:think>"]', None),
        ("<seed:think></seed:think>", "[]", None),
    ],
)
def test_a_template_with_other_reasoning_tags_is_rejected_and_the_tags_are_named(
    tmp_path: Path, template: str, tags: str, way_out: str | None
) -> None:
    write_model(tmp_path / "model", character_tokenizer("0123456789+="), SHAPE, seed=0)
    (tmp_path / "model/chat_template.jinja").write_text(template)
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1+1=", "answer": "2"}')
    arguments = [f"--model.path={tmp_path / 'model'}", f"--data.path={data}", "--run.id=tags"]
    resolved = resolve(
        None, arguments=[*arguments, *([f"--reward.reasoning-tags={tags}"] if tags else [])], environment={}
    )
    if way_out is None:
        check_input(resolved)
    else:
        with pytest.raises(ConfigError, match=way_out):
            check_input(resolved)
