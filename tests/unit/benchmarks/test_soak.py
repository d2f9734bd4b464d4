"""How the soak judges: memory by its slope, descriptors and threads by what stays."""

import random

from benchmarks.soak import growth, judge

STEPS = range(6000, 26000, 33)


def test_a_slope_in_noise_is_found_within_its_interval() -> None:
    draw = random.Random(3)
    for wanted in (0.0, 0.5, 12.0):
        slope, half = growth([(step, 100 + wanted * step / 1000 + draw.gauss(0, 2)) for step in STEPS])
        assert abs(slope - wanted) < 2 * half < 1
    assert judge("memory_mb", [(step, step / 500) for step in STEPS])[1]


def test_the_soak_verdict_ignores_short_peaks_and_reports_lasting_growth() -> None:
    moments = [(float(step), 30.0 + (step % 99 == 0) * (1 if step < 13000 else 3)) for step in STEPS]
    assert not judge("descriptors", moments)[1]
    assert judge("threads", [(step, value + (step >= 15000)) for step, value in moments])[1]
