"""What the demo makes: sums apart from the held-out ones, and a model that transformers loads."""

from pathlib import Path

from headrace.demo.arithmetic import exercises
from headrace.model.model_check import check_model
from tests.verbs import said


def test_every_pair_occurs_once_and_held_out_sums_are_not_trained() -> None:
    training, held_out = exercises(seed=0, held_out=100)
    assert len(held_out) == 100 and len({one.prompt for one in training + held_out}) == 8100
    assert all(sum(map(int, one.prompt[:-1].split("+"))) == int(one.answer) for one in training[:50])
    assert exercises(seed=0, held_out=100) == (training, held_out) != exercises(seed=1, held_out=100)


def test_a_model_is_made_in_a_new_folder_only(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("how many clips\n")
    made = ("make-model", "--tokenizer-from", tmp_path / "text", "--vocab-size", 300, "--out")
    said(*made, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    complaint = said(*made, tmp_path / "model", "--seed", 1, status=2)
    assert f"{tmp_path / 'model'} is not empty (config.json): choose a new folder with --out" in complaint
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert "is a file" in said(*made, tmp_path / "text", status=2)
    assert "cannot be made (Not a directory)" in said(*made, tmp_path / "text" / "below", status=2)
    assert (tmp_path / "text").read_text() == "how many clips\n"
    (tmp_path / "empty").mkdir()
    said(*made, tmp_path / "empty")
    assert check_model(tmp_path / "empty", engine="torch").family == "qwen3"
