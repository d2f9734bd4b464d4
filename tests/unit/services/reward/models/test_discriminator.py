"""The discriminator as a scorer: it follows the trainer's versions, each group by one of them, and never guesses."""

import asyncio
import dataclasses
import math
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.scorer import Context, Scorer, ScorerDownError
from headrace.services.reward.scorers.models import discriminator as module
from headrace.services.reward.scorers.registry import build_scorer
from tests.unit.services.reward.models.test_reward_model import alone, ids_of, samples, write_folder


def build(run_dir: Path | None, **options: Any) -> Scorer:
    return build_scorer("discriminator", options, Context(component="adversary", run_dir=run_dir, timeout_s=20.0))


def publish(run_dir: Path, version: int, *, seed: int = 0, digest: str = "") -> Path:
    """As the trainer does: the folder first, then its name."""
    folder = run_dir / "discriminator"
    path = write_folder(folder / f"version-{version:06d}", seed=seed or version + 1)
    (folder / "current").write_text(f"{path.name} {digest or f'{version:064x}'}\n")
    return path


def values(verdicts: Any) -> list[float]:
    return [verdict.value for verdict in verdicts]


def probabilities(path: Path) -> list[float]:
    return [1 / (1 + math.exp(-alone(path, ids_of(sample)))) for sample in samples()]


async def test_a_discriminator_scorer_is_down_until_the_first_version(tmp_path: Path) -> None:
    scorer = build(tmp_path)
    await scorer.load()
    with pytest.raises(ScorerDownError, match="has published no version"):
        await scorer.score(samples())
    path = publish(tmp_path, 0)
    assert values(await scorer.score(samples())) == pytest.approx(probabilities(path), abs=1e-6)
    await scorer.close()


async def test_a_discriminator_scorer_follows_published_versions(tmp_path: Path) -> None:
    scorer = build(tmp_path)
    seen = []
    for version in (0, 4, 12):
        path = publish(tmp_path, version)
        assert values(await scorer.score(samples())) == pytest.approx(probabilities(path), abs=1e-6)
        seen.append(scorer.version)
    assert [text.split("-")[0] for text in seen] == ["0", "4", "12"]
    # A life that was set back publishes the same version again, with other weights.
    shutil.rmtree(path)
    path = publish(tmp_path, 12, seed=40, digest="f" * 64)
    assert values(await scorer.score(samples())) == pytest.approx(probabilities(path), abs=1e-6)
    assert scorer.version != seen[-1]
    await scorer.close()


async def test_a_verdict_names_its_scoring_version_even_if_a_newer_one_arrives_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, waits = threading.Event(), threading.Event()
    real = module.Classifier

    class Slow(real):  # type: ignore[misc, valid-type]
        def __call__(self, sequences: Any) -> list[float]:
            waits.set()
            assert held.wait(20)
            found: list[float] = super().__call__(sequences)
            return found

    monkeypatch.setattr(module, "Classifier", Slow)
    publish(tmp_path, 3)
    scorer = build(tmp_path)
    foreign = dataclasses.replace(samples()[0], completion_ids=np.array([10_000], np.int32))
    early = asyncio.create_task(scorer.score([*samples(), foreign]))
    assert await asyncio.to_thread(waits.wait, 20)
    monkeypatch.setattr(module, "Classifier", real)
    publish(tmp_path, 4)
    late = await scorer.score(samples())
    held.set()
    versions = [{verdict.version.split("-")[0] for verdict in verdicts} for verdicts in (await early, late)]
    assert versions == [{"3"}, {"4"}]
    assert {verdict.version for verdict in late} == {scorer.version}
    await scorer.close()


async def test_an_invalid_version_pointer_counts_as_no_version(tmp_path: Path) -> None:
    publish(tmp_path, 0)
    for text in ("", "version-000000", f"../../secrets {'0' * 64}", f"version-000009 {'0' * 64}"):
        (tmp_path / "discriminator" / "current").write_text(text)
        scorer = build(tmp_path)
        with pytest.raises(ScorerDownError):
            await scorer.score(samples())
        await scorer.close()


async def test_the_forms_of_the_score_lie_within_their_range(tmp_path: Path) -> None:
    path = publish(tmp_path, 0)
    expected = probabilities(path)
    for form, made in (
        ("probability", expected),
        ("log", [math.log(one) for one in expected]),
        ("logit", [math.log(one / (1 - one)) for one in expected]),
    ):
        scorer = build(tmp_path, form=form)
        found = values(await scorer.score(samples()))
        await scorer.close()
        assert found == pytest.approx(made, abs=1e-5)
        assert all(scorer.low <= value <= scorer.high for value in found)
    for logit in (-1e5, -800.0, 0.0, 800.0):
        assert 0 <= module._formed(logit, "probability") <= 1
        assert math.log(1e-6) <= module._formed(logit, "log") <= 0
    assert math.isnan(module._formed(math.nan, "probability"))
