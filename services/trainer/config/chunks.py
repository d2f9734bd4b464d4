"""How many tokens' logits are in memory at a time, where no number is given."""

_CPU, _CUDA = 256, 2048
"""On a GPU each chunk is a pass over the head's gradient, vocabulary by hidden: of a Qwen3 of 1.7 B on one H200 a step
takes 4.79 s in chunks of 256 tokens, 4.15 s of 2,048 and 4.09 s of 8,192, which hold 10 GiB more
(docs/benchmarks.md)."""


def logprob_chunk(given: int, device: str) -> int:
    """`given`, or for 0 the default of the device's type (`cuda`, `cpu`)."""
    return given or (_CUDA if device == "cuda" else _CPU)
