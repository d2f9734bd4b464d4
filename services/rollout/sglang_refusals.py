"""Flags and variables that an SGLang server is never given, known before one is started."""

from collections.abc import Iterable

RAW_LOGPROBS = "SGLANG_RETURN_ORIGINAL_LOGPROB"
"""Makes SGLang report logprobs of another distribution than it draws from."""
_OWN_FLAGS = (
    "--config",
    "--api-key",
    "--admin-api-key",
    "--model-path",
    "--host",
    "--port",
    "--tp-size",
    "--tensor-parallel-size",
    "--dp-size",
    "--data-parallel-size",
    "--pp-size",
    "--pipeline-parallel-size",
    "--enable-deterministic-inference",
    "--dtype",
    "--enable-fp32-lm-head",
    "--quantization",
    "--weight-version",
    "--skip-tokenizer-init",
    "--enable-memory-saver",
    "--enable-weights-cpu-backup",
)
_DANGEROUS_FLAGS = ("--enable-custom-logit-processor", "--custom-weight-loader")
_SAMPLING_FLAGS = ("--preferred-sampling-params",)


def refusal(arguments: Iterable[str], variables: Iterable[str]) -> str | None:
    """Why a server cannot be given these flags or variables; None if it can.

    SGLang's parser accepts any unambiguous prefix of a flag.
    """
    if RAW_LOGPROBS in variables:
        return f"env: {RAW_LOGPROBS} makes SGLang report other logprobs than those it draws by; leave it out"
    for argument in arguments:
        flag = argument.partition("=")[0]
        if not flag.startswith("--"):
            continue
        if any(known.startswith(flag) for known in _DANGEROUS_FLAGS):
            return f"extra_args: {argument} lets requests execute code; it is never passed on"
        if any(known.startswith(flag) for known in _SAMPLING_FLAGS):
            return f"extra_args: {argument} changes what is drawn, and not the logprobs that are trained; leave it out"
        if any(known.startswith(flag) for known in _OWN_FLAGS) or flag in ("--tp", "--dp", "--pp"):
            return f"extra_args: {argument} is set by headrace from its own keys"
    return None
