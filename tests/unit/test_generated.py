"""What is generated and committed is what `make generate` would write."""

import pytest

import generate


@pytest.mark.parametrize("generator", generate.GENERATORS, ids=lambda one: one.__name__)
def test_every_generated_file_is_up_to_date(generator) -> None:
    old = [path.relative_to(generate.ROOT).as_posix() for path in generate.old_files([generator])]
    assert old == [], "run `make generate` and commit what it wrote"
