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
def test_a_plain_value_round_trips_unchanged(value):
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
def test_a_subclass_is_encoded_by_its_data_and_not_by_its_overrides(value, base):
    assert decode(encode(value)) == base


@pytest.mark.parametrize("value", [object(), len, {1: object()}, (x for x in [object()]), type("T", (), {})])
def test_a_value_that_is_not_plain_is_rejected(value):
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
def test_values_that_stand_for_plain_values_are_encoded_as_plain(value, told):
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
def test_foreign_number_types_are_encoded_as_python_numbers(value, number):
    found = json.loads(encode(value))
    assert (found, type(found)) == (number, type(number))


def test_a_user_dict_cannot_impersonate_a_tag():
    value = {"set": [1, 1]}
    assert json.loads(encode(value)) == {"dict": [["set", [1, 1]]]}
    assert decode(encode(value)) == value
