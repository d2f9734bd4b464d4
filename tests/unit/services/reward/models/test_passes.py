"""Forward passes shared by callers: what is joined, what a deadline bounds, and who is told of what."""

import asyncio
import threading

import numpy as np
import pytest

from headrace.services.reward.scorer import ScorerDownError
from headrace.services.reward.scorers.models.passes import Passes
from headrace.wire.errors import WaitTimeoutError


class Model:
    """Says of each sequence its sum; keeps the lengths of each pass, and waits at `gate` in each."""

    def __init__(self):
        self.passes = []
        self.gate = threading.Event()
        self.gate.set()
        self.running = self.most = 0

    def __call__(self, sequences):
        self.running += 1
        self.most = max(self.most, self.running)
        self.gate.wait(300)
        self.passes.append([len(sequence) for sequence in sequences])
        self.running -= 1
        return [float(sequence.sum()) for sequence in sequences]


def rows(*lengths, value=1):
    return [np.full(length, value, np.int32) for length in lengths]


def passes(model, *, max_tokens=100, deadline_s=5.0, joined=True):
    return Passes(model, max_tokens=max_tokens, deadline_s=deadline_s, what="the scorer rm", joined=joined)


async def test_callers_of_the_same_time_share_passes_sorted_by_length_and_each_gets_its_own():
    model = Model()
    of = passes(model, max_tokens=20)
    found = await asyncio.gather(of.run(rows(9, 2, 5)), of.run(rows(3, 10)), of.run([]), of.run(rows(25)))
    assert found == [[9.0, 2.0, 5.0], [3.0, 10.0], [], [25.0]]
    assert model.passes == [[25], [10, 9], [5, 3, 2]]
    assert model.most == 1


async def test_callers_that_arrive_during_a_pass_share_the_next():
    model = Model()
    of = passes(model)
    model.gate.clear()
    first = asyncio.create_task(of.run(rows(4)))
    while not model.running:
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(of.run(rows(length))) for length in (2, 3)]
    await asyncio.sleep(0.01)
    model.gate.set()
    assert await asyncio.gather(first, *others) == [[4.0], [2.0], [3.0]]
    assert model.passes == [[4], [3, 2]]


async def test_a_pass_that_hangs_fails_its_callers_and_the_scorer_is_down_until_it_ends():
    model = Model()
    of = passes(model, max_tokens=8, deadline_s=0.1)
    model.gate.clear()
    ends = await asyncio.gather(of.run(rows(8)), of.run(rows(4, 3)), return_exceptions=True)
    assert model.running and not model.passes, "they waited until the pass had ended"
    assert isinstance(ends[0], WaitTimeoutError) and "waited 0.1 s for a forward pass of the scorer rm" in str(ends[0])
    assert isinstance(ends[1], ScorerDownError)
    with pytest.raises(ScorerDownError, match="has hung"):
        await of.run(rows(1))
    assert of._stuck is not None
    model.gate.set()
    await of._stuck  # The pass has ended, and the loop knows.
    of._deadline_s = 60.0
    assert await of.run(rows(1)) == [1.0]


async def test_a_caller_that_gives_up_takes_nothing_from_the_others():
    model = Model()
    of = passes(model)
    model.gate.clear()
    first = asyncio.create_task(of.run(rows(4)))
    while not model.running:
        await asyncio.sleep(0.001)
    second, third = (asyncio.create_task(of.run(rows(length))) for length in (2, 3))
    await asyncio.sleep(0.01)
    second.cancel()
    first.cancel()
    await asyncio.sleep(0.01)
    model.gate.set()
    assert await third == [3.0]
    assert model.passes == [[4], [3]]
