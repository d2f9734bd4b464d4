"""What must install and start without torch and transformers does import without them."""

import subprocess
import sys

import pytest

_BLOCKED = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{name} must not be needed")
sys.meta_path.insert(0, Refuse())
root = importlib.import_module(sys.argv[1])
names = [root.__name__]
for found in pkgutil.walk_packages(root.__path__, root.__name__ + "."):
    if not found.name.startswith("headrace.wire.weights") and not found.name.endswith("__main__"):
        names.append(found.name)
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.parametrize("package", ["headrace.wire", "headrace.services.reward", "headrace.services.orchestrator"])
def test_imports_without_torch_and_transformers(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED, package], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5
