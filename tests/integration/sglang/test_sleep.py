"""The real server between sleep and wake. On a CPU its memory saver does nothing; its routes, their order and its
assertion that nothing runs are those of a GPU."""

import asyncio
from pathlib import Path

import pytest

from headrace.services.rollout.engines.protocol import AbandonedError
from tests.integration.sglang.test_engine import LONG, gap, running
from tests.rollout_models import make_model, make_request, random_prompts
from tests.sglang import Server, Trainer, attached, engine_of, expected_checksums

pytestmark = pytest.mark.sglang


async def test_a_busy_server_falls_asleep_and_a_publication_wakes_it(server: Server, tmp_path: Path) -> None:
    trainer, (prompt,) = Trainer(), random_prompts(7)
    async with engine_of(attached(server, tmp_path)) as engine:
        await trainer.publish(engine, make_model(seed=3), 0)
        for version, seed in ((1, 4), (2, 5)):
            # What is in the middle of its decoding when the engine goes to sleep is given up.
            group = asyncio.create_task(engine.generate(make_request(prompt, 3, **{**LONG, "max_tokens": 3000})))
            await running(engine, 3)
            await engine.abandon("the engine goes to sleep", 10)
            with pytest.raises(AbandonedError):
                await group
            await engine.sleep(20)
            await engine.sleep(20)  # Again: SGLang would be asked to release what it has released.
            await engine.wake(20)
            await engine.wake(20)
            model = make_model(seed=seed)
            await trainer.publish(engine, model, version)
            assert await engine.checksums(10) == expected_checksums(model)
            (one,) = await engine.generate(make_request(prompt, 1, max_tokens=20))
            assert gap(model, prompt, one.token_ids, one.logprobs) < 1e-5
            assert [span.version.version for span in one.spans] == [version]
