"""Fixtures that several folders of tests use."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.valkey import Valkey

# Before grpc is imported: its threads, started anew in a child that a `preexec_fn` makes a real fork, crash that child
# before it becomes another program (https://github.com/grpc/grpc/issues/43055).
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# An assert that fails outside of a test's own file tells its values, too. Nothing of ours has been imported before.
_HERE = Path(__file__).parent
pytest.register_assert_rewrite(
    *(f"tests.{one.stem}" for one in _HERE.iterdir() if one.stem[0] != "_" and one.stem != "conftest")
)

# An example's time is the machine's load, nothing of ours. Continuous integration draws the same examples each time, so
# that a commit's outcome is no matter of luck; `make check` and `make test` draw new ones.
settings.register_profile("headrace", deadline=None, derandomize=os.environ.get("HEADRACE_DERANDOMIZE") == "1")
settings.load_profile("headrace")


def pytest_configure(config: pytest.Config) -> None:
    from tests.progress import Progress

    # What is started in the background of a shell has inherited that SIGINT is ignored, and so would the programs that
    # tests end by Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress())


@pytest.fixture
def valkey(tmp_path: Path) -> "Iterator[Valkey]":
    from tests.valkey import Valkey

    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


def pytest_collection_finish() -> None:
    # What is imported by now stays: without this each full collection walks through all of torch and transformers.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure() -> None:
    from tests.warm.start import stop

    stop()
