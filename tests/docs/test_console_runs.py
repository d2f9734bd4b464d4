"""The ```console lines about runs, typed by a reader: a run that lives, the same when it has ended, and trainings."""

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.run.execute import STOPPED
from tests.dead_letters import bury_prompts
from tests.docs.console import Case
from tests.docs.console_table import ENDED, LIVE, LIVE_RUN, TRAINING, UNTIL_STOPPED, WITHOUT_A_RUN, WORDS
from tests.docs.reader import Reader, Served
from tests.otlp import collector
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
NEEDED_STEPS = 92
"""Pages export step 60 and replay 81 to 90."""
LETTERS = 2


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("console"), WORDS)


@pytest.fixture(scope="module")
def live(reader: Reader) -> Iterator[Served]:
    """A run with two dead letters, past the steps that the pages name."""
    served = reader.serve(LIVE_RUN.command(WORDS))
    try:
        served.wait_for(r"step 2 ")
        config = json.loads((reader.folder / "runs/mine/config/orchestrator.json").read_text())
        with ThreadPoolExecutor() as threads:
            threads.submit(asyncio.run, bury_prompts(config["broker"]["url"], "mine", LETTERS)).result(120)
        served.wait_for(rf"step {NEEDED_STEPS} ")
        told = json.loads(reader.shell("headrace dead runs/mine --json").splitlines()[-1])
        assert len(told["rows"]) == LETTERS, told
        reader.variables |= {
            "URL": f"http://127.0.0.1:{port_of(reader, 'orchestrator')}",
            "REWARD_PORT": str(port_of(reader, "reward-0")),
            "FREE_PORT": str(free_port()),
            "LETTER": told["rows"][0]["id"],
        }
        yield served
    finally:
        served.close()


def port_of(reader: Reader, service: str) -> int:
    return int(json.loads((reader.folder / f"runs/mine/run/{service}.json").read_text())["http_port"])


@pytest.mark.long
@pytest.mark.parametrize("case", LIVE, ids=str)
def test_on_a_live_run(case: Case, live: Served, reader: Reader) -> None:
    reader.do(case)


@pytest.fixture(scope="module")
def ended(live: Served) -> None:
    """The last line about the live run has stopped it."""
    assert re.search(LIVE_RUN.says, live.end(status=STOPPED))


@pytest.mark.long
@pytest.mark.parametrize("case", ENDED, ids=str)
def test_on_a_run_that_has_ended(case: Case, ended: None, reader: Reader) -> None:
    reader.do(case)


@pytest.mark.long
@pytest.mark.parametrize("case", WITHOUT_A_RUN, ids=str)
def test_without_a_run(case: Case, reader: Reader) -> None:
    reader.do(case)


@pytest.mark.long  # Stages, ranks, traces and trackers have e2e tests of their own.
@pytest.mark.parametrize("case", TRAINING, ids=str)
def test_a_training(case: Case, reader: Reader) -> None:
    with collector() as found:
        reader.variables["COLLECTOR"] = found.url
        reader.do(case)
    if "--tracing" in case.line:
        assert {"issue", "generate", "score", "train", "step"} <= {span.name for span in found.spans}


@pytest.mark.long
def test_a_training_until_it_is_stopped(reader: Reader) -> None:
    train, stop = UNTIL_STOPPED
    served = reader.serve(train.command(WORDS))
    try:
        served.wait_for(r"step 2 ")
        reader.do(stop)
        assert re.search(train.says, served.end(status=STOPPED))
    finally:
        served.close()
