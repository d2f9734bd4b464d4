"""The stand-alone scripts under deploy/, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

DEPLOY = Path(__file__).parents[3] / "deploy"


def load(name: str) -> ModuleType:
    """`docker/gpus.py` and the like."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, DEPLOY / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
