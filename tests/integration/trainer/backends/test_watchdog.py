"""Training groups keep their watchdog, whatever publications construct at the same time.

ProcessGroupNCCL reads TORCH_NCCL_BLOCKING_WAIT in its constructor and starts no watchdog where it is set; publications
set it for theirs. Held here on the real groups of gloo, by two processes; no GPU is needed to read a variable.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
WORLD_S = 180
NAME = "TORCH_NCCL_BLOCKING_WAIT"
MAKERS = {"init_process_group", "new_group", "new_subgroups", "split_group", "init_device_mesh", "DeviceMesh"}
"""Functions of torch by which groups are made."""


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["fsdp2", "deepspeed"])
def test_no_training_group_is_made_under_the_publications_variable(tmp_path: Path, backend: str) -> None:
    if backend == "deepspeed":
        pytest.importorskip("deepspeed", reason="the extra `deepspeed` is not installed")
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "tests.integration.trainer.backends.watchdog_rank", str(tmp_path), backend, "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORLD_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["seen"] and all(values == [None, None] for values in found["seen"]), (rank, found["seen"])
        assert found["published"] == ["1"] and found["count"] > 10


def test_groups_are_made_within_the_lock_wherever_the_trainer_makes_them() -> None:
    made: dict[str, list[int]] = {}
    outside: dict[str, list[int]] = {}
    for path in sorted((ROOT / "services/trainer").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guarded = _guarded(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _makes_groups(node):
                made.setdefault(path.name, []).append(node.lineno)
                if id(node) not in guarded:
                    outside.setdefault(path.name, []).append(node.lineno)
    assert made.keys() == {"collectives.py", "sharding.py", "deepspeed.py"}
    assert not outside, f"lines {outside} make groups without `with_watchdog` (wire/weights/collective.py)"


def _guarded(tree: ast.Module) -> set[int]:
    """All nodes inside of a `with with_watchdog()`."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and any(_name(item.context_expr) == "with_watchdog" for item in node.items)
    ]
    return {id(node) for block in blocks for statement in block.body for node in ast.walk(statement)}


def _makes_groups(call: ast.Call) -> bool:
    of_deepspeed = ast.unparse(call.func) in ("deepspeed.initialize", "deepspeed.init_distributed")
    return of_deepspeed or _name(call) in MAKERS


def _name(node: ast.expr) -> str:
    """Name of what is called, without where it comes from."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
