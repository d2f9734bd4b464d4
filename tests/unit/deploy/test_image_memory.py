"""A container's services have as few heaps as those that `headrace train` starts."""

from pathlib import Path

from headrace.supervisor.once import child_environment

IMAGES = sorted((Path(__file__).parents[3] / "deploy" / "docker").glob("*.Dockerfile"))


def test_every_image_of_a_service_limits_the_heaps_of_glibc() -> None:
    limit = child_environment({}, threads=1)["MALLOC_ARENA_MAX"]
    assert child_environment({"MALLOC_ARENA_MAX": "8"}, threads=1)["MALLOC_ARENA_MAX"] == "8"
    texts = {image.name: image.read_text() for image in IMAGES if "OMP_WAIT_POLICY=PASSIVE" in image.read_text()}
    assert len(texts) >= 5
    for name, text in texts.items():
        assert text.count(f"MALLOC_ARENA_MAX={limit} ") == text.count("OMP_WAIT_POLICY=PASSIVE"), name
