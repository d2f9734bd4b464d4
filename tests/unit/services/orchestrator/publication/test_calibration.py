"""What is concluded where a replica's checksums differ from the trainer's table."""

import pytest

from headrace.services.orchestrator.publication.calibration import judge
from headrace.wire.v1.common_pb2 import TensorChecksum


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
def test_the_model_folder_shows_whether_the_table_or_the_weights_are_wrong(
    found: dict[str, str], folder: dict[str, str], damaged: bool, words: str
) -> None:
    judged = judge(
        [TensorChecksum(name=name, value=value) for name, value in found.items()],
        folder,
        loaded_known=True,
        why_not="late",
    )
    assert judged.damaged is damaged and words in judged.words
