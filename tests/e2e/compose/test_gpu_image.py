"""The gpu targets keep the engine image's torch; a stand-in for SGLang's image has a Python with torch of its own."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, docker

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.gpu_image, pytest.mark.timeout(1500)]

ENGINE, IMAGE = "headrace-test-engine:0", "headrace-rollout:test-gpu"
VERSIONS = (
    "import json, torch, transformers as t; print(json.dumps([torch.__version__, torch.__file__, t.__version__]))"
)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    need_engine()
    images = engine_images()
    if not images:
        pytest.skip("only where base images are made on the machine itself: the stand-in takes its torch from there")
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    text = f"FROM {images['PYTHON_IMAGE']}\nRUN --mount=type=cache,target=/root/.cache/pip,sharing=locked "
    # Another transformers than headrace's, as SGLang has.
    text += f"pip install --quiet {torch} transformers==5.19.0\n"
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "host", "--tag", ENGINE, "-"],
        input=text,
        text=True,
        check=True,
        timeout=900,
        capture_output=True,
    )
    words = ["--build-arg", f"PYTHON_IMAGE={images['PYTHON_IMAGE']}", "--build-arg", f"ENGINE_IMAGE={ENGINE}"]
    file = str(ROOT / "deploy/docker/rollout.Dockerfile")
    words += ["--network", "host", "--file", file, "--target", "gpu", "--tag", IMAGE, str(ROOT)]
    docker("build", "--quiet", *words, seconds=900)
    yield IMAGE
    docker("rmi", IMAGE, ENGINE)


def run(image: str, python: str, code: str) -> str:
    return docker("run", "--rm", "--user", "10001:10001", "--entrypoint", python, image, "-P", "-c", code)


def test_headrace_runs_on_the_engines_torch_and_leaves_its_python_alone(image: str) -> None:
    engine = json.loads(run(image, "/opt/engine/bin/python", VERSIONS))
    ours = json.loads(run(image, "python", VERSIONS))
    assert ours[:2] == engine[:2]
    assert engine[2] == "5.19.0" != ours[2]
    run(image, "python", "import services.rollout.app, services.rollout.engines.sglang.engine")


def test_a_replica_without_a_gpu_says_so(image: str) -> None:
    command = ["docker", "run", "--rm", "--user", "10001:10001", "--entrypoint", "python", image, "gpus.py"]
    done = subprocess.run(
        [*command, "--count", "1", "--locks", "/runs/.gpus", "--", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "1 GPUs are needed, 0 are seen" in done.stderr, done.stderr
