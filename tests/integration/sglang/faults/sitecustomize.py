"""On the PYTHONPATH of a test's SGLang server: makes its weight loading lie while a control file says so.

`skip`: says that it loaded, and did not. `corrupt`: changes one number of one tensor on the way. Anything else, or no
file: as SGLang is.
"""

import importlib.abc
import os
import sys
from pathlib import Path
from typing import Any

_MODULE = "sglang.srt.model_executor.model_runner_components.weight_updater"
_CONTROL = os.environ.get("HEADRACE_TEST_FAULT", "")


def _fault() -> str:
    try:
        return Path(_CONTROL).read_text().strip()
    except OSError:
        return ""


def _patch(updater: Any) -> None:
    load, from_disk = updater.load_weights_from_distributed, updater.update_weights_from_disk

    def lying_load(self: Any, named_tensors: list[Any]) -> tuple[bool, str]:
        match _fault():
            case "skip":
                return True, "Succeeded to update parameter online."
            case "corrupt":
                # Too little for the canary's tolerance, so it is for the checksums to find.
                named_tensors[0][1].view(-1)[0] += 1e-6
        found: tuple[bool, str] = load(self, named_tensors)
        return found

    def lying_from_disk(self: Any, *arguments: Any, **options: Any) -> tuple[bool, str]:
        if _fault() == "skip":
            return True, "Succeeded to update model weights."
        found: tuple[bool, str] = from_disk(self, *arguments, **options)
        return found

    updater.load_weights_from_distributed = lying_load
    updater.update_weights_from_disk = lying_from_disk


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find the module and patches it once it is loaded."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            _patch(module.WeightUpdater)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if _CONTROL:
    import importlib.util

    sys.meta_path.insert(0, _Finder())
