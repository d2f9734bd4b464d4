"""Versions of the policy, and which tokens each of them sampled."""

from dataclasses import dataclass

from headrace.wire.errors import ContractError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PolicyVersion:
    """`incarnation.version`: version v is the weights after v steps, in one life of the trainer."""

    incarnation: int
    version: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.version}"

    @classmethod
    def parse(cls, text: str) -> "PolicyVersion":
        """Reads `incarnation.version`; raises ContractError (`bad_version`) for anything else."""
        left, dot, right = text.partition(".")
        if not (dot and left.isdecimal() and right.isdecimal()):
            raise ContractError("bad_version", f"{text!r} is not of the form incarnation.version")
        return cls(incarnation=int(left), version=int(right))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Tokens [start, end) of a completion were sampled under `version`, whose weights have `weights_digest`."""

    start: int
    end: int
    version: PolicyVersion
    weights_digest: str = ""
