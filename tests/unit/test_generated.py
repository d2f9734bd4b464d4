"""What is generated and committed is what `make generate` would write."""

from pathlib import Path

import pytest

import generate


@pytest.mark.parametrize("generator", generate.GENERATORS, ids=lambda one: one.__name__)
def test_no_generated_file_is_old(generator) -> None:
    old = [path.relative_to(generate.ROOT).as_posix() for path in generate.old_files([generator])]
    assert old == [], "run `make generate` and commit what it wrote"


def test_a_file_that_is_old_or_missing_is_found(tmp_path: Path) -> None:
    current, changed = tmp_path / "current", tmp_path / "changed"
    current.write_text("same")
    changed.write_text("old")
    told = [(current, "same"), (changed, "new"), (tmp_path / "missing", "new")]
    assert generate.old_files([lambda: iter(told)]) == {changed: "new", tmp_path / "missing": "new"}
