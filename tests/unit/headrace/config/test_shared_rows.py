"""What cannot be combined with ranks that share rows is refused before anything starts."""

from pathlib import Path

import pytest

from headrace.config.resolve import resolve, settle
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.run.preparation.input_checks import check_input
from headrace.wire.errors import ConfigError

SHAPE = Shape(context=64, layers=1, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=16)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trainer.ranks=2", "--trainer.cp=2"), None),
        (("--trainer.ranks=4", "--trainer.cp=4"), "cp: 4 does not divide the model's 2 attention heads"),
        (("--trainer.ranks=2", "--trainer.cp=2", "--trainer.compile=true"), "trainer.compile"),
        (("--trainer.ranks=2", "--trainer.cp=2", "--run.stage=sft", "--sft.pack-tokens=64"), "sft.pack_tokens"),
    ],
)
def test_heads_compiled_layers_and_packed_rows_are_checked(
    tmp_path: Path, arguments: tuple[str, ...], words: str | None
) -> None:
    write_model(tmp_path / "model", character_tokenizer("0123456789+="), SHAPE, seed=0)
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1+1=", "answer": "2"}')
    place = (f"--model.path={tmp_path / 'model'}", f"--data.path={data}", "--run.id=shared")
    if words is None:
        check_input(settle(resolve(None, arguments=[*place, *arguments], environment={})))
        return
    with pytest.raises(ConfigError, match=words):
        check_input(settle(resolve(None, arguments=[*place, *arguments], environment={})))
