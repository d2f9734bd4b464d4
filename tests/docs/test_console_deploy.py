"""The ```console lines for Docker and Kubernetes, typed by a reader: with a real engine, and without a cluster."""

import os
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.docs.console import Case
from tests.docs.console_table import AFTER_UP, BEFORE_UP, KUBERNETES, SECRETS, UP, WHILE_UP, WORDS
from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Reader, Served
from tests.e2e.compose.engine import engine_images, need_engine
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]
RUN_ARGS = "--demo --run.max-steps 2 --sft.steps 3 --batch.groups 8 --eval.prompts 8"
BUILD_S, UP_S = 1200, 900


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("deploy"), WORDS)


@pytest.fixture(scope="module")
def compose(reader: Reader) -> Iterator[Reader]:
    """A project of its own, with the images of the other tests with an engine. It is gone at the end."""
    need_engine()
    reader.variables |= {
        **engine_images(),
        "FOLDER": str(reader.folder),
        "HOME": os.environ.get("HOME", "/"),
        "COMPOSE_PROJECT_NAME": f"headrace-pages-{os.getpid()}",
        "COMPOSE_PROFILES": "cpu",
        "COMPOSE_PROGRESS": "plain",
        "IMAGE_TAG": "test",
        "DASHBOARD_PORT": str(free_port()),
        "RUN": "my-run",
        "RUN_ARGS_CPU": RUN_ARGS,
    }
    try:
        yield reader
    finally:
        reader.shell("docker compose --profile '*' down --volumes --timeout 5", folder=ROOT)


@pytest.mark.long
@pytest.mark.parametrize("case", BEFORE_UP, ids=str)
def test_before_it_is_up(case: Case, compose: Reader) -> None:
    compose.do(case, folder=ROOT, seconds=BUILD_S)


@pytest.fixture(scope="module")
def up(compose: Reader) -> Iterator[Served]:
    """Attached to a terminal, as the page says, until the run has finished: the services stay."""
    served = compose.serve(UP.command(WORDS), folder=ROOT)
    try:
        served.wait_for(r"-trainer exited with code 0", UP_S)
        yield served
    finally:
        served.close()


@pytest.mark.long
@pytest.mark.parametrize("case", WHILE_UP, ids=str)
def test_while_it_is_up(case: Case, up: Served, compose: Reader) -> None:
    compose.do(case, folder=ROOT, seconds=UP_S)


@pytest.mark.long
def test_ctrl_c_stops_everything_and_down_leaves_nothing(up: Served, compose: Reader) -> None:
    assert (compose.folder / "my-model" / "model.safetensors").is_file()
    assert re.search(UP.says, up.ctrl_c())
    until(lambda: not running(compose), "all to be stopped", seconds=120)
    compose.do(AFTER_UP, folder=ROOT)
    label = f"label=com.docker.compose.project={compose.variables['COMPOSE_PROJECT_NAME']}"
    for what in ("container ls --all", "volume ls", "network ls"):
        assert not compose.shell(f"docker {what} --quiet --filter {label}").strip()


def running(compose: Reader) -> str:
    """Names of services."""
    return compose.shell("docker compose ps --services --status running", folder=ROOT).strip()


@pytest.fixture(scope="module")
def overlay(reader: Reader) -> Reader:
    """The folder `my-run` as the page makes it."""
    if shutil.which("kubectl") is None:
        assert os.environ.get("HEADRACE_REQUIRE_DOCKER") != "1", "kubectl is missing"
        pytest.skip("needs kubectl 1.24 or newer on PATH")
    reader.shell("\n".join(case.command(WORDS) for case in SECRETS))
    page = ROOT / "docs" / "kubernetes.md"
    text = next(block.text for block in blocks("yaml") if block.page == page)
    (reader.folder / "my-run" / "kustomization.yaml").write_text(text)
    return reader


@pytest.mark.parametrize("case", KUBERNETES, ids=str)
def test_without_a_cluster(case: Case, overlay: Reader) -> None:
    overlay.do(case)


def test_the_secrets_of_the_walk_agree(overlay: Reader) -> None:
    folder = overlay.folder / "my-run" / "secrets" / "broker"
    password = (folder / "password").read_text()
    assert re.fullmatch(r"[0-9a-f]{48}", password)
    assert (folder / "url").read_text() == f"redis://:{password}@valkey:6379/0"
