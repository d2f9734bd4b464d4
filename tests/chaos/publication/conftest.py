"""One stage for all tests of a file: replicas are started once, only victims anew."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.chaos.publication import strike
from tests.chaos.publication.stage import Stage, open_stage
from tests.valkey import Valkey


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    strike.install(patch)
    folder = tmp_path_factory.mktemp("stage")
    valkey = Valkey(folder / "valkey")
    valkey.start()
    try:
        async with open_stage(folder / "run", valkey.url) as opened:
            yield opened
    finally:
        valkey.stop()
