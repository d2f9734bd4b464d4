import json
import time

import pytest

from headrace.services.reward.sandbox.inside.plain import encode
from headrace.services.reward.scorers.code.expected import Differs, Equals, Holds, Is, Near, Printed
from headrace.services.reward.scorers.code.values import SHAPES

TOLERANCE = 1e-6
FIB_500 = 139423224561697880139724382870407283950070256587697307264108962948325571622863290691557658876222521294125


def returned(answer, value, tolerance=TOLERANCE):
    return answer.accepts(encode(value).encode(), tolerance)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("1 2\n3\n", "1 2\n3"),
        ("1 2\n3", "1 2  \n3\n\n\n"),
        ("a\r\nb", "a\nb"),
        ("1 2 3", "1  2\t3"),
        ("0.333333333", "0.3333333"),
        ("1e3", "1000.0"),
        ("2.0", "2"),
        ("-0.0", "0"),
        ("x 1.50 y", "x 1.5 y"),
        ("", "\n"),
    ],
)
def test_output_is_compared_as_people_do(wanted, found):
    assert Printed(wanted).accepts(found.encode(), TOLERANCE)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("1 2\n3", "1 2 3"),
        ("1\n\n2", "1\n2"),
        ("10", "10.0"),
        ("007", "7"),
        ("0.5", "0.6"),
        ("0.5", "nan"),
        ("1.5", "inf"),
        ("YES", "yes"),
        ("1", ""),
        ("1", "1 1"),
        ("1.0", "1.0 1.0"),
    ],
)
def test_outputs_that_differ_to_a_reader_are_unequal(wanted, found):
    assert not Printed(wanted).accepts(found.encode(), TOLERANCE)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (3, 3),
        (0.1 + 0.2, 0.3),
        (1.0, 1),
        (1.0, 1.0000001),
        (0.0, 1e-7),
        (1, 1.0),
        (2**60, float(2**60)),
        ([1, [2]], [1.0, [2.0]]),
        (True, 1),
        ([1, (2, "x")], [1, (2, "x")]),
        ({3, 1, 2}, {1, 2, 3}),
        ({(1, "a"), (0, "b")}, {(0, "b"), (1, "a")}),
        ({"a": [1.0], 2: {3}}, {2: {3}, "a": [1.0000000001]}),
        pytest.param(10**5000, 10**5000, id="large"),
        (None, None),
        (b"x", b"x"),
        (1 + 2j, 1 + 2j),
        ({None, "a", 1, (1,), 2.5, b"b"}, {None, "a", 1, (1,), 2.5, b"b"}),
    ],
)
def test_equal_values_are_equal(wanted, found):
    assert returned(Equals(wanted), found)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (3, 4),
        (3, "3"),
        ("3", 3),
        ([1], (1,)),
        ((1,), [1]),
        ([1], [1, 1]),
        ({1, 2}, [1, 2]),
        ({1, 2}, {1, 3}),
        ({1: 2}, {1: 3}),
        ({1: 2}, {2: 2}),
        (None, 0),
        (0, None),
        pytest.param(FIB_500, float(FIB_500), id="Binet's fib(500)"),
        (2432902008176640000, 2432902008176640512.0),
        (12345678901234567891, float(12345678901234567891)),
        (0, 1e-7),
        (False, 1e-7),
        (True, 1.0000001),
        (1, 1.0000001),
        ([1, [2]], [1, [2.0000001]]),
        ({1: 2}, {1: 2.0000001}),
        ({1, 2}, {1, 2.0000001}),
        (1, float("nan")),
        (1.0, float("inf")),
        pytest.param(10**400, 1.0, id="beyond reals"),
        (10**400, float("inf")),
        ("a", ["a"]),
    ],
)
def test_other_values_are_not(wanted, found):
    assert not returned(Equals(wanted), found)


def test_json_expectations_treat_tuples_and_lists_alike():
    assert returned(Equals([1, [2]], loosely=True), (1, (2,)))
    assert returned(Equals({"1": [2]}, loosely=True), {1: (2,)})
    assert not returned(Equals([3], loosely=True), 3)
    assert not returned(Equals(3, loosely=True), [3])
    assert not returned(Equals([1, 2]), (1, 2))


def test_a_float_near_an_expected_integer_is_not_equal():
    assert not returned(Equals([FIB_500], loosely=True, wrapped=True), float(FIB_500))
    assert returned(Equals([2], loosely=True, wrapped=True), 2.0)
    assert not returned(Equals([2], loosely=True, wrapped=True), 2.0000001)
    assert returned(Differs(Equals(2)), 2.0000001) and not returned(Differs(Equals(2)), 2.0)
    assert returned(Near(2, absolute=1e-6, relative=0.0), 2.0000001)
    assert not Printed(str(FIB_500)).accepts(str(float(FIB_500)).encode(), TOLERANCE)


def test_apps_expectations_may_be_wrapped_in_a_list():
    assert returned(Equals([3], loosely=True, wrapped=True), 3)
    assert returned(Equals([[1, 2]], loosely=True, wrapped=True), [1, 2])
    assert not returned(Equals([3, 4], loosely=True, wrapped=True), 3)


@pytest.mark.parametrize(
    "found", [range(1, 3), map(int, "12"), (x for x in (1, 2)), {1: 0, 2: 0}.keys(), {0: 1, 1: 2}.values()]
)
def test_ordered_iterables_count_as_lists_for_json_expectations(found):
    assert returned(Equals([1, 2], loosely=True), found)


def test_in_asserts_an_iterable_equals_only_what_python_considers_equal():
    assert not returned(Equals([1, 2]), range(1, 3))
    assert not returned(Equals((1, 2)), iter((1, 2)))
    assert not returned(Equals({1: 2}), {1: 2}.items())
    assert returned(Equals({1, 2}), {2: 0, 1: 0}.keys())
    assert not returned(Equals({1, 2}), {2: 0, 3: 0}.keys())
    assert returned(Equals([1, 2], shape=SHAPES["sorted"]), (x for x in (2, 1)))
    assert returned(Equals({1, 2}, shape=SHAPES["set"]), [1, 2, 2])
    assert returned(Equals(2, shape=SHAPES["len"]), {1: 0, 2: 0}.values())
    with pytest.raises(ValueError, match="no length"):
        returned(Equals(2, shape=SHAPES["len"]), iter("ab"))
    assert (
        returned(Holds(True), iter("")) and not returned(Holds(True), range(0)) and not returned(Holds(True), {}.keys())
    )


def test_one_is_not_true_where_identity_is_asked():
    assert returned(Is(True), True) and not returned(Is(True), 1) and not returned(Is(True), 1.0)
    assert returned(Is(None), None) and not returned(Is(None), 0) and not returned(Is(None), False)
    assert returned(Is(1), 1) and not returned(Is(1), True)
    assert returned(Differs(Is(True)), 1) and not returned(Differs(Is(None)), None)


def test_truth_difference_and_nearness():
    assert returned(Holds(True), [0]) and not returned(Holds(True), [])
    assert returned(Holds(False), set()) and returned(Holds(False), {}) and not returned(Holds(False), {1})
    assert returned(Differs(Equals(3)), 4) and not returned(Differs(Equals(3)), 3)
    near = Near(0.5, absolute=0.01, relative=0.0)
    assert returned(near, 0.509) and not returned(near, 0.52)
    assert not returned(near, "0.5") and not returned(near, 10**400)


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"1 1",
        b"{",
        b"\xff\xfe",
        b'{"set": [1], "tuple": []}',
        b"{}",
        b'{"what": 1}',
        b'{"dict": [1]}',
        b'{"dict": [[1, 2, 3]]}',
        b'{"tuple": 3}',
        b'{"int": "x"}',
        b'{"int": 3}',
        b'{"bytes": "zz"}',
        b'{"complex": ["a", "b"]}',
        b"[" * 100_000,
        b"[" * 900 + b"]" * 900,
        b"1" * 5000,
        b"passed",
    ],
)
def test_output_not_encoded_by_the_sandbox_is_an_error_and_never_an_answer(output):
    for answer in (Equals(1), Equals([1], loosely=True), Is(True), Holds(True), Differs(Equals(1)), Near(1, 0.1, 0.0)):
        with pytest.raises(ValueError, match="no encoded value"):
            answer.accepts(output, TOLERANCE)


def test_a_forged_set_with_one_item_twice_is_not_a_set_of_two():
    assert not Equals({1, 2}).accepts(b'{"set": [1, 1]}', TOLERANCE)
    assert not Equals({1: 2, 3: 4}).accepts(b'{"dict": [[1, 2], [1, 2]]}', TOLERANCE)


def test_numbers_that_collide_as_hashes_cost_no_more_than_others():
    forged = [number * ((1 << 61) - 1) for number in range(50_000)]
    wanted = Equals(set(range(50_000)))
    begin = time.process_time()
    assert not wanted.accepts(json.dumps({"set": forged}).encode(), TOLERANCE)
    assert not Equals(1).accepts(json.dumps({"dict": [[number, 0] for number in forged]}).encode(), TOLERANCE)
    assert time.process_time() - begin < 5  # Hashed, it would be minutes.
