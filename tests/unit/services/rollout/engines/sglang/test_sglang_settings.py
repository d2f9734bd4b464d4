"""`[rollout.sglang]` as users write it, and what is refused before a server is started."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.config.resolve import resolve
from headrace.config.toml import to_toml
from headrace.services.rollout.engines.sglang.start import _routes, start_engine
from headrace.services.rollout.settings import SGLangTable
from headrace.wire.errors import ConfigError
from tests.rollout_models import make_model
from tests.sglang import sglang_settings

TABLE = """
[data]
path = "p.jsonl"
[rollout]
engine = "sglang"
[rollout.sglang]
venv = "servers/venv"
urls = ["http://a:1", "http://b:2"]
api_key_file = "keys/api"
extra_args = ["--log-level", "warning"]
env = { NCCL_DEBUG = "WARN" }
python_path = ["one", "two"]
"""


def test_the_table_survives_the_file_and_its_paths_start_at_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TABLE)
    found = resolve(tmp_path / "run.toml", arguments=["--rollout.sglang.tp=2"], environment={}).config
    table = found.rollout.sglang
    assert table.venv == tmp_path / "servers/venv" and table.api_key_file == tmp_path / "keys/api"
    assert table.python_path == (tmp_path / "one", tmp_path / "two") and table.tp == 2
    assert table.urls == ("http://a:1", "http://b:2") and table.env == {"NCCL_DEBUG": "WARN"}
    # What is not given stays empty, and does not become the working directory.
    assert not table.admin_key_file.parts
    again = tmp_path / "again.toml"
    again.write_text(to_toml(found.model_dump(mode="json", serialize_as_any=True)))
    assert resolve(again, arguments=[], environment={}).config.rollout == found.rollout


@pytest.mark.parametrize(
    ("sglang", "rollout", "reason"),
    [
        ({}, {"deterministic": True}, r"rollout\.deterministic"),
        ({"tp": 2}, {}, r"rollout\.sglang\.tp"),
        ({"venv": "/nowhere"}, {}, r"rollout\.sglang\.venv"),
        ({"api_key_file": "/nowhere/key"}, {}, "the key file"),
    ],
)
async def test_settings_that_can_never_serve_are_rejected_before_a_server_starts(
    tmp_path: Path, sglang: dict[str, Any], rollout: dict[str, Any], reason: str
) -> None:
    make_model().config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=reason):
        await start_engine(sglang_settings(tmp_path, tmp_path, sglang, **rollout))
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"extra_args": ("--enable-custom-logit-processor",)}, "lets requests execute code"),
        ({"extra_args": ("--enable-custom",)}, "lets requests execute code"),
        ({"extra_args": ("--custom-weight-loader=x",)}, "lets requests execute code"),
        ({"extra_args": ("--api-key=x",)}, "set by headrace"),
        ({"extra_args": ("--model", "other")}, "set by headrace"),
        ({"extra_args": ("--dp", "2")}, "set by headrace"),
        ({"extra_args": ("--enable-memory-saver",)}, "set by headrace"),
        ({"extra_args": ("--enable-weights-cpu-backup",)}, "set by headrace"),
        ({"extra_args": ("--preferred-sampling", '{"min_p": 0.1}')}, "changes what is drawn"),
        ({"env": {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}}, "other logprobs"),
    ],
)
def test_flags_and_variables_that_must_not_be_given_are_refused_with_the_config(
    table: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        SGLangTable(**table)


def test_other_flags_pass() -> None:
    SGLangTable(extra_args=("--log-level", "warning", "--watchdog-timeout=900", "--chunked-prefill-size", "-1"))


async def test_a_gpu_that_the_server_does_not_see_is_rejected(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("""#!/bin/sh\necho '{"devices": ["GPU-a", "GPU-b"], "nccl": "2.30.7"}'\n""")
    python.chmod(0o755)
    own = {"venv": tmp_path / "venv", "device": "cuda", "base_gpu_id": 1}
    routes = await _routes(sglang_settings(tmp_path, tmp_path, own))
    assert (routes.devices, routes.backends) == (("GPU-b",), ("nccl", "gloo"))
    with pytest.raises(ConfigError, match=r"replica 0 takes GPUs 1 to 2, but the server's torch sees 2"):
        await _routes(sglang_settings(tmp_path, tmp_path, own | {"tp": 2}))
