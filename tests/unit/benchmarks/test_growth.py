import random

from benchmarks.growth import growth


def test_a_line_in_noise_is_found_within_its_interval() -> None:
    draw = random.Random(3)
    for wanted in (0.0, 0.5, 12.0):
        found = growth([(step, 100 + wanted * step / 1000 + draw.gauss(0, 2)) for step in range(0, 6000, 5)])
        assert abs(found.slope - wanted) < 2 * found.half_width < 1
        assert found.exceeds(wanted - 1) and not found.exceeds(wanted + 1)
