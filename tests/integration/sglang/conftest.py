"""One server for all tests of this folder that do not kill it."""

from collections.abc import Iterator

import pytest

from tests.sglang import Server, serve


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory.mktemp("sglang"), None, "--enable-metrics")
