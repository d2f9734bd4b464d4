"""Syncs a harness's script with uv: `python -m headrace.services.environment.taskset.sync HARNESS FOLDER [PATH]`."""

import asyncio
import sys
from pathlib import Path

from verifiers.v1.runtimes.subprocess import SubprocessConfig, SubprocessRuntime
from verifiers.v1.utils.loaders import harness_config_type, load_harness

from headrace.services.environment.taskset.harness import write_interpreters


async def sync(name: str, folder: Path) -> None:
    """Runs the harness's own setup in a runtime whose scripts lie in `folder`."""
    SubprocessRuntime.scripts_dir = str(folder / "scripts")
    runtime = SubprocessRuntime(SubprocessConfig(), f"headrace-sync-{name}")
    await runtime.start()
    try:
        await load_harness(harness_config_type(name).model_validate({"id": name})).setup(runtime)
    finally:
        await runtime.teardown()
    write_interpreters(folder, SubprocessRuntime._interpreters)


if __name__ == "__main__":
    sys.path += filter(None, sys.argv[3:])
    asyncio.run(sync(sys.argv[1], Path(sys.argv[2])))
