"""What is concluded where a replica's checksums differ from the trainer's table."""

import pytest

from headrace.services.orchestrator.publication.calibration import judge
from headrace.wire.v1.common_pb2 import TensorChecksum


def doubted(**values: str) -> list[TensorChecksum]:
    return [TensorChecksum(name=name, value=value) for name, value in values.items()]


@pytest.mark.parametrize(
    ("found", "folder", "damaged", "words"),
    [
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, True, "a, b are not the trainer's"),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "x"}, False, "table does not fit this server: b differ in model.path"),
        # It has no tensor of this name.
        ({"a": "1", "b": ""}, {"a": "1", "b": "2"}, False, "table does not fit this server: b differ"),
        # Of one of them the folder says nothing.
        ({"a": "1", "b": "2"}, {"a": "1"}, True, "a, b are not the trainer's"),
        ({"a": "1"}, {}, False, "cannot be tried: late"),
    ],
)
def test_the_folder_tells_whether_the_table_is_wrong_or_the_weights(
    found: dict[str, str], folder: dict[str, str], damaged: bool, words: str
) -> None:
    judged = judge(doubted(**found), folder, loaded_known=True, why_not="late")
    assert judged.damaged is damaged and words in judged.words


def test_without_what_the_server_had_loaded_nothing_is_concluded() -> None:
    judged = judge(doubted(a="", b=""), {"a": "1"}, loaded_known=False)
    assert not judged.damaged and "had loaded is not known" in judged.words


def test_the_first_names_are_said_and_the_rest_counted() -> None:
    judged = judge(doubted(a="1", b="1", c="1", d="1", e="1"), dict.fromkeys("abcde", "2"), loaded_known=True)
    assert "a, b, c and 2 more tensors differ" in judged.words
