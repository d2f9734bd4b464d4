import json
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest

from headrace.services.reward.sandbox.inside.plain import NotPlainError, decode, encode

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


@pytest.mark.parametrize("value", [object(), len, {1: object()}, (x for x in [object()]), type("T", (), {})])
def test_what_is_no_plain_value_is_refused(value):
    with pytest.raises(NotPlainError, match="no plain value"):
        encode(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ((x for x in "ab"), {"iterator": ["a", "b"]}),
        (map(int, "12"), {"iterator": [1, 2]}),
        (iter([1]), {"iterator": [1]}),
        (range(3), {"sequence": [0, 1, 2]}),
        (deque([(1, 2)]), {"sequence": [{"tuple": [1, 2]}]}),
        ({1: 2}.values(), {"sequence": [2]}),
        (array("i", [1, 2]), {"sequence": [1, 2]}),
        ({1: 2}.keys(), {"keys": [1]}),
        ({1: 2}.items(), {"keys": [{"tuple": [1, 2]}]}),
        ([range(1), [map(str, "a")]], [{"sequence": [0]}, [{"iterator": ["a"]}]]),
        (np.arange(4).reshape(2, 2), {"sequence": [[0, 1], [2, 3]]}),
        (np.array(7), 7),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
    ],
)
def test_what_stands_for_plain_values_goes_out_as_these(value, told):
    assert json.loads(encode(value)) == told


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (Fraction(6, 2), 3),
        (Fraction(1, 4), 0.25),
        (Decimal("3.00"), 3),
        (Decimal("0.1"), 0.1),
        (Decimal("1e9999"), float("inf")),
        (Decimal("-Infinity"), float("-inf")),
        (np.int64(3), 3),
        (np.bool_(True), True),
    ],
)
def test_numbers_of_other_kinds_go_out_as_pythons_own(value, number):
    found = json.loads(encode(value))
    assert (found, type(found)) == (number, type(number))


def test_a_dict_of_the_users_cannot_pass_for_a_tag():
    value = {"set": [1, 1]}
    assert json.loads(encode(value)) == {"dict": [["set", [1, 1]]]}
    assert decode(encode(value)) == value
