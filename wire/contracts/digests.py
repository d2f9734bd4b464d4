"""Digests of weights name their algorithm: `xxh3:HEX`, `sgl64:HEX`. Those of unlike algorithms are never compared.

One without a name is of xxh3, as run directories from before names have it.
"""

XXH3 = "xxh3"
"""xxh3-128, on a processor."""
SGL64 = "sgl64"
"""SGLang's checksum of a tensor on a GPU (wire/weights/device_hash.py), wherever it is computed."""
SGL64_MOST_BYTES = 4 * (2**31 - 1)
"""Size limit of one tensor: SGLang's kernel counts words in 32 bits."""


def named(algorithm: str, value: str) -> str:
    """`value`, in hex, under the algorithm's name."""
    return f"{algorithm}:{value}"


def algorithm_of(digest: str) -> str:
    """The algorithm that made the digest."""
    return _split(digest)[0]


def value_of(digest: str) -> str:
    """The hex digits after the algorithm's name."""
    return _split(digest)[1]


def same_weights(one: str, other: str) -> bool | None:
    """Whether two digests of weights are equal; None where they cannot be compared."""
    (first, value), (second, other_value) = _split(one), _split(other)
    return value == other_value if first == second else None


def unknown_algorithm(algorithm: str) -> str:
    """Error text for a digest whose algorithm is not known here."""
    return (
        f"the trainer names weights by {algorithm!r}, known here are {XXH3} and {SGL64}: "
        "run trainer and replicas from one version of Headrace"
    )


def _split(digest: str) -> tuple[str, str]:
    algorithm, colon, value = digest.rpartition(":")
    return (algorithm, value) if colon else (XXH3, digest)
