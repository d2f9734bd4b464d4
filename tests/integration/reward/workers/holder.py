"""Holds a pool until it is killed; its children's process ids are in the file."""

import asyncio
import json
import sys
from pathlib import Path

from headrace.services.reward.workers.pool import WorkerPool


async def hold(file: Path) -> None:
    pool = WorkerPool("jobs:plain", processes=2, deadline_s=60.0, what="jobs", path=Path(__file__).parent)
    await pool.start()
    found = await asyncio.gather(*(pool.run({"do": "nap", "seconds": 0.5}) for _ in range(2)))
    aside = file.with_suffix(".aside")
    aside.write_text(json.dumps([item["pid"] for item in found]))
    aside.rename(file)
    # One of them works, and will for long, when the service dies.
    await pool.run({"do": "nap", "seconds": 60})


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1])))
