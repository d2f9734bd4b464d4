"""What is wrong with a value that pydantic refuses, for the user."""

from pydantic import ValidationError


def first_problem(error: ValidationError) -> str:
    """The first key that is wrong, and what is wrong with it, in one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
