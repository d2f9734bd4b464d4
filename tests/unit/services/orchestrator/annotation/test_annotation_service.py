"""The votes are opened once, however long that takes and although a caller has stopped waiting."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.services.orchestrator.annotation import annotation_service as service_module
from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.annotation.votes import VoteStore
from headrace.wire.errors import WaitTimeoutError
from tests.annotation import write_run


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Opening ends when the event is set; no caller waits for it longer than 50 ms."""
    write_run(tmp_path)
    go = threading.Event()

    class SlowStore(VoteStore):
        def __init__(self, run_dir: Path) -> None:
            assert go.wait(10)
            super().__init__(run_dir)

    monkeypatch.setattr(service_module, "VoteStore", SlowStore)
    monkeypatch.setattr(service_module, "_DISK_S", 0.05)
    yield go
    go.set()


async def test_an_opening_that_outlasts_its_asker_serves_the_next(
    slow: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = AnnotationService(tmp_path)
    for _ in range(2):
        with pytest.raises(WaitTimeoutError, match="the votes to be read"):
            await service.ask(lambda votes: votes.summary())
    asking = asyncio.create_task(service.ask(lambda votes: votes.summary()))
    await asyncio.sleep(0.01)
    asking.cancel()  # As when the browser goes away.
    await asyncio.gather(asking, return_exceptions=True)
    slow.set()
    monkeypatch.setattr(service_module, "_DISK_S", 10.0)
    assert (await service.ask(lambda votes: votes.summary())).votes == 0
    await service.close()
    VoteStore(tmp_path).close()


async def test_a_vote_that_comes_while_the_ranked_pairs_are_written_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written, loop = threading.Event(), [], asyncio.get_running_loop()
    begun, again = asyncio.Event(), asyncio.Event()

    class SlowExport(VoteStore):
        def export(self) -> None:
            loop.call_soon_threadsafe((again if written else begun).set)
            written.append(True)
            assert go.wait(60)

    monkeypatch.setattr(service_module, "VoteStore", SlowExport)
    monkeypatch.setattr(service_module, "_EXPORT_AFTER_S", 0.0)
    service = AnnotationService(write_run(tmp_path))
    await service.change(lambda votes: None)
    await asyncio.wait_for(begun.wait(), 60)
    await service.change(lambda votes: None)
    go.set()
    await asyncio.wait_for(again.wait(), 60)
    await service.close()
