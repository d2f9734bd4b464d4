"""A warning where more than a tenth of agents' turns begins a segment that its program did not mean."""

from collections import Counter

from headrace.services.environment.agent.segments import EPISODES, SegmentWatch


def test_segments_by_edits_or_templates_are_reported_once_a_window_but_not_branches() -> None:
    watch = SegmentWatch()
    meant = Counter({"first": 1, "opened": 4, "branched": 4, "": 1})
    assert watch.take("r/0", 10, meant) is None
    assert watch.take("r/1", 9, Counter({"first": 1, "edited": 1})) is None, "19 turns"
    share = watch.take("r/2", 6, Counter({"edited": 1, "template": 1}))
    assert share is not None and watch.is_high
    assert share.in_words() == (
        "12.0% of the last 25 turns of agents begin a segment (2 edited, 1 template), the last in r/2"
    )
    assert watch.take("r/3", 5, Counter({"edited": 5})) is None
    for number in range(EPISODES):
        assert (watch.take("r/4", 1, Counter({"edited": 1})) is not None) == (number == EPISODES - 1)
    for _ in range(EPISODES):
        watch.take("r/5", 1, meant)
    assert not watch.is_high
