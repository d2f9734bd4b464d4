"""Tokens have texts that join to the whole, also where a character has several tokens."""

from pathlib import Path

from headrace.services.orchestrator.dashboard.readers.group_view import group_view
from headrace.services.orchestrator.dashboard.readers.tokens import Decoder
from tests.dashboard_run import write_tokenizer


def ids(folder: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    found: list[int] = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    return found


def test_token_texts_concatenate_to_the_whole_text(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokens = ids(tmp_path, "two + two, höchstens €4")
    texts = Decoder([tmp_path / "none", tmp_path]).texts(tokens)
    assert texts is not None and len(texts) == len(tokens)
    assert "".join(texts) == "two + two, höchstens €4"


def test_a_group_view_shows_each_token_with_its_known_values() -> None:
    row = {
        "group_id": "demo/g7", "group_index": 7, "rollout_index": 0, "prompt": "p", "completion": "ab", "reward": 1.0,
        "advantage": 0.5, "components": '{"exact": 1, "judge": null}', "scorers": '{"exact": "1"}', "tokens": 2,
        "spans": '[[0, 2, "1.3", "d"]]', "token_ids": [5, 6], "logprobs": [-0.5, None], "token_advantages": [1.0, None],
    }  # fmt: skip
    view = group_view(3, [row, {**row, "token_advantages": None}], lambda ids: ["a", "b"])
    assert view.group_id == "demo/g7" and view.step == 3
    first, second = view.rollouts
    assert [token.model_dump() for token in first.tokens] == [
        {"id": 5, "text": "a", "logprob": -0.5, "advantage": 1.0},
        {"id": 6, "text": "b", "logprob": None, "advantage": None},
    ]
    assert [token.advantage for token in second.tokens] == [0.5, None]  # What was not sampled is not trained.
    assert first.components == {"exact": 1.0, "judge": None}
    assert [span.model_dump() for span in first.spans] == [
        {"start": 0, "end": 2, "version": "1.3", "weights_digest": "d"}
    ]
