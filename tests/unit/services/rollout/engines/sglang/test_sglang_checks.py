"""Which servers are refused, and with what flags ours are started."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.services.rollout.engines.sglang.checks import ServedModelShape, check_server, read_shape
from headrace.services.rollout.engines.sglang.flags import (
    SHIMS,
    LaunchPlan,
    check_plan,
    environment,
    server_config,
)
from headrace.wire.errors import ConfigError

SHAPE = ServedModelShape(family="qwen3", architectures=("Qwen3ForCausalLM",), vocab=97, context_length=4096)
SERVER = {
    "version": "0.5.23",
    "dp_size": 1,
    "pp_size": 1,
    "tp_size": 1,
    "dtype": "float32",
    "max_running_requests": 65,
    "max_total_num_tokens": 100_000,
    "max_req_input_len": 4090,
    "context_length": None,
    "enable_priority_scheduling": True,
    "enable_deterministic_inference": False,
}
MODEL = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "model_path": "m"}


def check(server: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **wanted: Any) -> Any:
    numbers = {"tp": 1, "dtype": "float32", "fp32_head": False, "context_length": 0, "deterministic": False} | wanted
    return check_server(SERVER | (server or {}), MODEL | (model or {}), SHAPE, **numbers)


def test_a_fitting_server_tells_its_limits() -> None:
    found = check()
    assert (found.vocab, found.context_length, found.max_requests, found.priorities) == (97, 4096, 65, True)
    assert found.prompt_length == 4089
    assert (check(context_length=128).context_length, check(context_length=128).prompt_length) == (128, 127)
    assert check({"max_total_num_tokens": 1016}).context_length == 1000
    admitted = {"max_running_requests": None, "internal_states": [{"effective_max_running_requests_per_dp": 2048}]}
    assert check(admitted).max_requests == 2048


@pytest.mark.parametrize(
    ("server", "plain"),
    [
        ({"moe_runner_backend": "auto", "moe_a2a_backend": "none", "ep_size": 1}, True),
        ({"moe_runner_backend": "triton"}, True),
        ({}, False),
        ({"moe_runner_backend": "flashinfer_cutlass"}, False),
        ({"moe_runner_backend": "triton_kernel"}, False),
        ({"moe_runner_backend": "auto", "moe_a2a_backend": "deepep"}, False),
        ({"moe_runner_backend": "auto", "ep_size": 2}, False),
    ],
)
def test_experts_count_as_plain_only_if_the_kernels_keep_the_loaded_layout(server: dict[str, Any], plain: bool) -> None:
    assert check(server).plain_experts is plain


@pytest.mark.parametrize(
    ("server", "wanted", "reason"),
    [
        ({"version": "0.5.20"}, {}, "0.5.20 is not supported"),
        ({"version": "0.6.0"}, {}, "0.6.0 is not supported"),
        ({"version": "nightly"}, {}, "nightly is not supported"),
        ({"version": None}, {}, "not supported"),
        ({"dp_size": 2}, {}, "dp_size 2"),
        ({"pp_size": 2}, {}, "pp_size 2"),
        ({"tp_size": 2}, {}, "rollout.sglang.tp"),
        ({}, {"tp": 2}, "rollout.sglang.tp"),
        ({"dtype": "bfloat16"}, {}, "model.dtype is float32"),
        ({"dtype": "bfloat16"}, {"dtype": "bfloat16", "fp32_head": True}, "start it with --enable-fp32-lm-head"),
        (
            {"dtype": "bfloat16", "enable_fp32_lm_head": True},
            {"dtype": "bfloat16"},
            "fp32_head is False, .* start it without --enable-fp32-lm-head",
        ),
        ({"quantization": "fp8"}, {}, "quantizes"),
        ({"preferred_sampling_params": {"min_p": 0.1}}, {}, "--preferred-sampling-params"),
        ({"speculative_algorithm": "EAGLE"}, {}, "speculates"),
        ({"enable_deterministic_inference": True}, {}, "rollout.deterministic is False"),
        ({}, {"deterministic": True}, "rollout.deterministic is True"),
        ({"context_length": 100}, {"context_length": 101}, "rollout.context_length"),
        ({"max_running_requests": None}, {}, "max_running_requests"),
    ],
)
def test_a_server_that_does_not_fit_the_run_is_rejected_with_the_reason(
    server: dict[str, Any], wanted: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        check(server, **wanted)


def test_the_model_shape_is_read_from_its_folder_and_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    config = {"model_type": "x", "architectures": ["A"], "text_config": {"vocab_size": 7, "max_position_embeddings": 9}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_shape(tmp_path) == ServedModelShape(family="x", architectures=("A",), vocab=7, context_length=9)
    with pytest.raises(ConfigError, match=r"model\.path"):
        read_shape(tmp_path / "none")


def plan(**changes: Any) -> LaunchPlan:
    numbers = {
        "model_path": Path("/m"),
        "dtype": "float32",
        "device": "cpu",
        "host": "127.0.0.1",
        "port": 3,
        "api_key": "a",
        "admin_key": "b",
        "max_requests": 9,
        "env": {"OWN": "1"},
        "python_path": (SHIMS,),
    }
    return LaunchPlan(**(numbers | changes))


def test_a_cpu_server_is_started_with_the_recipes_settings() -> None:
    check_plan(plan())
    config, variables = server_config(plan()), environment(plan())
    assert config["attention-backend"] == "torch_native" and config["disable-overlap-schedule"]
    assert config["api-key"] != config["admin-api-key"] and config["enable-metrics"]
    assert variables["PYTHONPATH"] == str(SHIMS) and variables["GLOO_SOCKET_IFNAME"] == "lo"
    assert variables["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false" and variables["OWN"] == "1"
    script = (SHIMS.parent / "serve.sh").read_text()
    assert config["sleep-on-idle"] and config["max-running-requests"] == 9
    assert "max-running-requests" not in server_config(plan(max_requests=0))
    for flag in ("attention-backend torch_native", "disable-overlap-schedule --sleep-on-idle", "enable-priority"):
        assert f"--{flag}" in script


def test_a_gpu_server_gets_none_of_the_cpu_settings() -> None:
    gpu = plan(
        device="cuda", dtype="bfloat16", base_gpu_id=3, tp=2, deterministic=True, mem_fraction_static=0.4,
        python_path=(),
    )  # fmt: skip
    check_plan(gpu)
    with pytest.raises(ConfigError, match="no float32 kernels on a GPU"):
        check_plan(plan(device="cuda", dtype="float32", python_path=()))
    config, variables = server_config(gpu), environment(gpu)
    assert (config["base-gpu-id"], config["tp-size"], config["mem-fraction-static"]) == (3, 2, 0.4)
    assert config["enable-deterministic-inference"] and "attention-backend" not in config
    assert not variables["PYTHONPATH"] and variables["GLOO_SOCKET_IFNAME"] == "lo"
    elsewhere = environment(dataclasses.replace(gpu, one_machine=False))
    assert "GLOO_SOCKET_IFNAME" not in elsewhere
