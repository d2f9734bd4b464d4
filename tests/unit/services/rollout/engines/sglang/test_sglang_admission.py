"""Places at the server under every order of leaving and giving up."""

import asyncio

from headrace.services.rollout.engines.sglang.admission import Admission


async def test_a_waiter_cancelled_while_another_leaves_loses_no_place() -> None:
    for cancel_first in (False, True):
        admission = Admission(1)
        leave = asyncio.Event()

        async def first(admission: Admission = admission, leave: asyncio.Event = leave) -> str:
            async with admission.place():
                await leave.wait()
            return "done"

        async def later(admission: Admission = admission) -> str:
            async with admission.place():
                return "done"

        inside = asyncio.create_task(first())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(later())
        await asyncio.sleep(0)
        for act in (waiting.cancel, leave.set) if cancel_first else (leave.set, waiting.cancel):
            act()
        assert await inside == "done"
        await asyncio.gather(waiting, return_exceptions=True)
        assert (admission.inside, admission.waiting) == (0, 0)
        assert await later() == "done"
