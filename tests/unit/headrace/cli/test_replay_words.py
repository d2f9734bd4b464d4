"""What a replay says of weights: equal, other, or not to be compared."""

import json
from pathlib import Path

from headrace.cli.replay import in_words, summarize_replay


def replayed(folder: Path, *digests: tuple[str, str]) -> str:
    (folder / "events").mkdir(parents=True)
    events = [
        {"event": "step_done", "step": step, "weights_digest": found, "weights_digest_of_run": known}
        for step, (found, known) in enumerate(digests, 1)
    ]
    lines = "".join(json.dumps({"t": 1.0, **event}) + "\n" for event in events)
    (folder / "events" / "trainer.jsonl").write_text(lines)
    return in_words(summarize_replay(folder))


def test_a_run_from_before_digests_had_names_is_compared(tmp_path: Path) -> None:
    assert "2 of 2 steps are bit-equal" in replayed(tmp_path / "a", ("xxh3:a", "a"), ("xxh3:b", "xxh3:b"))
    assert "from step 2 on the weights are others" in replayed(tmp_path / "b", ("xxh3:a", "a"), ("xxh3:b", "c"))


def test_digests_of_unlike_algorithms_are_no_difference_and_are_told(tmp_path: Path) -> None:
    words = replayed(tmp_path, ("xxh3:a", "sgl64:b"), ("xxh3:b", "xxh3:b"))
    assert "1 of 2 steps are bit-equal" in words and "those of 1 cannot be compared" in words
