"""Every effect that outlives a process has a failpoint beside it, and every failpoint is one that tests strike."""

from tests.chaos.failpoints.expected import ELSEWHERE, RARE, WITHOUT
from tests.chaos.failpoints.source import effects_without_a_point, points


def test_every_lasting_effect_has_a_failpoint_in_its_function() -> None:
    assert effects_without_a_point() == sorted(WITHOUT)


def test_what_is_struck_elsewhere_exists() -> None:
    assert not (ELSEWHERE.keys() | RARE.keys()) - points()
    assert not ELSEWHERE.keys() & RARE.keys()


def test_the_source_has_points_of_all_kinds() -> None:
    kinds = {point.partition(".")[0] for point in points()}
    assert kinds == {"database", "event", "file", "folder", "journal", "line", "rpc", "step", "stream", "sync", "vote"}
