"""The gpu targets keep the engine image's torch; a stand-in for SGLang's image has a Python with torch of its own."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.compose.engine import engine_images, need_engine
from tests.e2e.compose.project import ROOT, docker
from tests.e2e.compose.strict import strict_checkout

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.gpu_image, pytest.mark.timeout(1800)]

ENGINE = "headrace-test-engine:0"
NAMES = ("rollout", "trainer")
VERSIONS = (
    "import json, torch, transformers as t; print(json.dumps([torch.__version__, torch.__file__, t.__version__]))"
)
IMPORTS = {
    "rollout": "import headrace.services.rollout.app, headrace.services.rollout.engines.sglang.engine",
    # What the profile gpu runs of this image: the trainer, its other stages, and `headrace prepare`.
    "trainer": "import headrace.services.trainer.runtime.runtime, headrace.services.trainer.stages, "
    "headrace.cli.prepare, deepspeed",
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Both, built from a checkout that nobody but its owner may read."""
    need_engine()
    bases = engine_images()
    if not bases:
        pytest.skip("only where base images are made on the machine itself: the stand-in takes its torch from there")
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    text = f"FROM {bases['PYTHON_IMAGE']}\nRUN --mount=type=cache,target=/root/.cache/pip,sharing=locked "
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
    context = strict_checkout(tmp_path_factory.mktemp("strict") / "headrace")
    words = ["--build-arg", f"PYTHON_IMAGE={bases['PYTHON_IMAGE']}", "--build-arg", f"ENGINE_IMAGE={ENGINE}"]
    words += ["--network", "host", "--target", "gpu"]
    made = {name: f"headrace-{name}:test-gpu" for name in NAMES}
    for name, image in made.items():
        file = str(context / f"deploy/docker/{name}.Dockerfile")
        docker("build", "--quiet", *words, "--file", file, "--tag", image, str(context), seconds=1200)
    yield made
    docker("rmi", *made.values(), ENGINE)


def run(image: str, python: str, code: str) -> str:
    return docker("run", "--rm", "--user", "10001:10001", "--entrypoint", python, image, "-P", "-c", code)


@pytest.mark.parametrize("name", NAMES)
def test_headrace_runs_on_the_engines_torch_and_leaves_its_python_alone(images: dict[str, str], name: str) -> None:
    engine = json.loads(run(images[name], "/opt/engine/bin/python", VERSIONS))
    ours = json.loads(run(images[name], "python", VERSIONS))
    assert ours[:2] == engine[:2]
    assert engine[2] == "5.19.0" != ours[2]
    run(images[name], "python", IMPORTS[name])


def test_both_images_have_the_same_torch_and_nccl(images: dict[str, str]) -> None:
    read = "print(open('/opt/headrace/engine.txt').read())"
    texts = [run(images[name], "python", read) for name in NAMES]
    assert texts[0] == texts[1] and "torch==" in texts[0]


def test_the_trainer_image_can_start_prepare_and_the_trainer(images: dict[str, str]) -> None:
    image = images["trainer"]
    said = docker("run", "--rm", "--user", "10001:10001", "--entrypoint", "headrace", image, "prepare", "--help")
    assert "--run-dir" in said
    (found,) = json.loads(docker("image", "inspect", image))
    assert found["Config"]["Entrypoint"] == ["python", "-P", "-m", "headrace.services.trainer"]
    assert found["Config"]["User"] == "10001:10001" and "HOME=/cache" in found["Config"]["Env"]


def test_a_replica_without_a_gpu_says_so(images: dict[str, str]) -> None:
    command = ["docker", "run", "--rm", "--user", "10001:10001", "--entrypoint", "python", images["rollout"], "gpus.py"]
    done = subprocess.run(
        [*command, "--count", "1", "--locks", "/runs/.gpus", "--", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "1 GPUs are needed, 0 are seen" in done.stderr, done.stderr
