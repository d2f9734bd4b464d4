"""How deep a training step lies below the stage: a traceback of it must be short enough to be read."""

import json
import multiprocessing
import traceback
from pathlib import Path

import pytest

from tests.integration.trainer.harness import one_life, settings_for

ROOT = Path(__file__).parents[3]
MOST = 7
"""Frames from `RlStage.run` to the optimizer's step, both counted."""


def fall_in_the_optimizer(values, out):
    """One life whose first optimizer step raises; writes the frames of ours from the stage down to it."""
    import torch

    def step(self, *_arguments, **_keywords):
        raise ArithmeticError("the optimizer's step")

    torch.optim.AdamW.step = step
    try:
        one_life(values, None, 0, {})
    except ArithmeticError as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame.name for frame in frames if (ROOT / "services") in Path(frame.filename).resolve().parents]
        # Torch's own wrappers around a step are no layer of ours.
        out.write_text(json.dumps([*ours, frames[-1].name]))


@pytest.mark.parametrize(
    "algorithm",
    [pytest.param({}, marks=pytest.mark.long), {"name": "ppo", "kl_coef": 0.0}],
    ids=["grpo", "ppo"],
)
def test_at_most_seven_frames_lie_between_the_stage_and_the_optimizer(tmp_path, algorithm):
    settings, out = settings_for(tmp_path, steps=1, algorithm=algorithm), tmp_path / "frames.json"
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=fall_in_the_optimizer, args=(settings.model_dump(mode="json"), out))
    process.start()
    process.join(150)
    assert out.is_file(), (tmp_path / "trainer.log").read_text()[-2000:]
    frames = json.loads(out.read_text())
    assert (frames[0], frames[-1]) == ("run", "step")
    assert len(frames) <= MOST, " > ".join(frames)
