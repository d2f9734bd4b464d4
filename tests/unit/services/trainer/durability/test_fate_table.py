"""The compact table of fates against a plain dict of them."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.durability.fate_table import FateTable, GroupFate
from headrace.wire.contracts import group_id

INDICES = st.one_of(st.integers(0, 60), st.integers(4090, 4100), st.integers(0, 2**62))
NAMES = st.sampled_from(["", "g", "run/g00000001", "other/g00000007"])


@st.composite
def fates(draw: st.DrawFn) -> GroupFate:
    index = draw(INDICES)
    name = draw(st.one_of(st.just(group_id("run", index)), NAMES))
    step = draw(st.sampled_from([0, 1, 2, 2**40]))
    reason = "" if step else draw(st.sampled_from(["", "stale", "abstained"]))
    return GroupFate(group_index=index, group_id=name, step=step, reason=reason)


@given(st.lists(fates(), unique_by=lambda fate: fate.group_index, max_size=40), INDICES)
def test_a_fate_table_behaves_like_a_dict(added: list[GroupFate], first: int) -> None:
    table, plain = FateTable(), {}
    for fate in added:
        assert fate.group_index not in table
        table.add(fate)
        plain[fate.group_index] = fate
        assert fate.group_index in table
    for begin in (0, first):
        assert list(table.since(begin)) == [plain[index] for index in sorted(plain) if index >= begin]
