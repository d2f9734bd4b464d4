"""SGLang looks vllm's rotary kernel up on devices without one of its own; on a CPU it then computes with torch."""

from typing import Any, NoReturn


def rotary_embedding(*arguments: Any, **options: Any) -> NoReturn:
    """Never called on a CPU."""
    raise RuntimeError("the stand-in for vllm has no kernels")
