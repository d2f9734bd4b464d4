import json
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum

import pytest

from services.reward.sandbox.inside.plain import NotPlainError, decode, encode

Point = namedtuple("Point", "x y")


class Level(IntEnum):
    HIGH = 3


class Liar(int):
    def __repr__(self):
        return "1"

    __str__ = __index__ = __repr__

    def __add__(self, other):
        return 1

    def __lt__(self, other):
        return True


PLAIN = [
    None,
    True,
    -5,
    2**70,
    -(10**5000),
    1.5,
    float("inf"),
    "x\ny\ud800",
    b"\x00\xff",
    1 + 2j,
    [1, [2, "3"]],
    (1, (2,), []),
    {1, 2},
    frozenset({("a", 1)}),
    {1: {"a": (None,)}, "b": [], (1, 2): {3}},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_a_plain_value_comes_back_as_it_was(value):
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, {1: [2]}), {1: [2]}),
        (OrderedDict(a=1), {"a": 1}),
        (Point(1, 2), (1, 2)),
        (Level.HIGH, 3),
        (Liar(7), 7),
    ],
)
def test_a_subclass_is_taken_for_the_data_that_it_holds_not_for_what_it_says(value, base):
    assert decode(encode(value)) == base


@pytest.mark.parametrize("value", [object(), len, range(3), (x for x in "a"), {1: object()}, [map(str, [1])]])
def test_what_is_no_plain_value_is_refused(value):
    with pytest.raises(NotPlainError, match="no plain value"):
        encode(value)


def test_a_dict_of_the_users_cannot_pass_for_a_tag():
    value = {"set": [1, 1]}
    assert json.loads(encode(value)) == {"dict": [["set", [1, 1]]]}
    assert decode(encode(value)) == value
