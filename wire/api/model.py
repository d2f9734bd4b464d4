"""What all answers have in common, and how a peer's answer is read."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from headrace.wire.errors import ConfigError

Number = int | float
Metrics = dict[str, Number]
"""Metric name -> value, in the units of docs/metrics.md."""


class ApiModel(BaseModel):
    """A JSON object. A field without a default is always there; one with a default may be absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


M = TypeVar("M", bound=BaseModel)


def encode(answer: BaseModel | Sequence[BaseModel]) -> bytes:
    """The answer as compact JSON; numbers that JSON lacks become null, fields that were not set are left out."""
    if isinstance(answer, BaseModel):
        return answer.model_dump_json(exclude_unset=True).encode()
    return b"[" + b",".join(encode(one) for one in answer) + b"]"


def read_answer_of(kind: type[M], answer: object, peer: str) -> M:
    """Reads the JSON value that `peer` (an address) answered; ignores fields that only a newer peer has.

    Raises ConfigError that names the first field which is missing or wrong.
    """
    try:
        return kind.model_validate(answer, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise ConfigError(
            f"{peer} answers differently from what this version of Headrace expects ({where}: {first['msg']}): use the "
            "`headrace` command of the version that serves it"
        ) from None
