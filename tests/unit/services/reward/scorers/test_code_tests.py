import json

import pytest

from headrace.services.reward.sandbox.inside.plain import decode, encode
from headrace.services.reward.scorers.code.tests import read_suite

FUNCTIONAL = [
    {"input": "1\n[2]", "output": "[1, 2]", "testtype": "functional"},
    {"input": "3\n[]", "output": "[3]", "testtype": "functional"},
]


def asked(suite):
    return [decode(test.given.decode()) for test in suite.tests]


def accepts(suite, *values):
    pairs = zip(suite.tests, values, strict=True)
    return [test.answer.accepts(encode(value).encode(), 1e-6) for test, value in pairs]


@pytest.mark.parametrize(
    "column",
    [
        {"inputs": ["1\n", "2\n"], "outputs": ["a\n", "b\n"]},
        json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["a\n", "b\n"]}),
        {"inputs": ["1\n", ["2", ""]], "outputs": [["a"], "b"], "fn_name": None},
        [{"input": "1\n", "output": "a"}, {"input": "2\n", "output": "b"}],
        json.dumps([{"input": "1\n", "output": "a", "testtype": "stdin"}, {"input": "2\n", "output": "b"}]),
    ],
)
def test_scripts_tests_are_read_in_all_their_forms(column):
    suite = read_suite(column, {})
    assert suite.function is None
    assert [test.given for test in suite.tests] == [b"1\n", b"2\n"]
    assert [test.answer.accepts(b"a\n", 0.0) for test in suite.tests] == [True, False]


@pytest.mark.parametrize(
    ("column", "columns"),
    [
        ({"fn_name": "f", "inputs": [[1, [2]], [3, []]], "outputs": [[1, 2], [3]]}, {}),
        ({"fn_name": "f", "inputs": [[1, [2]], [3, []]], "outputs": [[[1, 2]], [[3]]]}, {}),
        ({"inputs": [[1, [2]], [3, []]], "outputs": [[1, 2], [3]]}, {"fn_name": "f"}),
        ({"fn_name": "f", "inputs": ["1\n[2]", "3\n[]"], "outputs": ["[1, 2]", "[3]"]}, {}),
        ([{"input": "1\n[2]", "output": "[1, 2]"}, {"input": "3\n[]", "output": "[3]"}], {"entry_point": "f"}),
        ([{**one, "fn_name": "f"} for one in FUNCTIONAL], {}),
        ([{**one, "metadata": {"func_name": "f"}} for one in FUNCTIONAL], {}),
        ([{**one, "metadata": '{"func_name": "f"}'} for one in FUNCTIONAL], {}),
        (json.dumps(FUNCTIONAL), {"metadata": '{"func_name": "f"}'}),
        (FUNCTIONAL, {"metadata": {"func_name": "f"}}),
    ],
)
def test_functions_tests_are_read_in_all_their_forms(column, columns):
    suite = read_suite(column, columns)
    assert suite.function == "f"
    assert asked(suite) == [[1, [2]], [3, []]]
    assert accepts(suite, (1, 2), [3]) == [True, True]
    assert accepts(suite, (2, 1), [4]) == [False, False]


@pytest.mark.parametrize(
    ("line", "arguments", "right", "wrong"),
    [
        ("assert f(1, 'a') == [2]", [1, "a"], [2], (2,)),
        ("assert f((1, 2), {'k': {3}}) == {'k': (3, None)}", [(1, 2), {"k": {3}}], {"k": (3, None)}, {"k": [3, None]}),
        ("assert 5 == f(-2)", [-2], 5, -5),
        ("assert f() != 3, 'must differ'", [], 4, 3),
        ("assert f(1) is True", [1], True, False),
        ("assert f(1) is True", [1], True, 1),
        ("assert f(1) is not False", [1], 0, False),
        ("assert f(1) is None", [1], None, 0),
        ("assert f(1)", [1], "x", ""),
        ("assert not f(1)", [1], 0, 7),
        ("assert (f(1)) == 0.1 + 0j", [1], None, None),
        ("assert set(f((3, 4), (5, 4))) == set((4,))", [(3, 4), (5, 4)], (4, 4), (4, 3)),
        ("assert sorted(f('ba')) == ['a', 'b']", ["ba"], "ba", "bb"),
        ("assert len(f(1)) == 2", [1], {1: 1, 2: 2}, [1]),
        ("assert abs(f(2) - 1.414) < 1e-3", [2], 1.4142, 1.42),
        ("assert abs(1.414 - f(2)) <= 1e-3", [2], 1.4142, 1.42),
        ("assert math.isclose(f(2), 1.414, rel_tol=0.001)", [2], 1.4142, 1.42),
        ("assert f(float('inf')) == float('-inf')", [float("inf")], float("-inf"), 0.0),
    ],
)
def test_an_assert_is_taken_apart_into_call_and_expectation(line, arguments, right, wrong):
    if "0j" in line:
        assert accepts(read_suite([line], {}), 0.1 + 0j) == [True]
        return
    suite = read_suite([line], {})
    assert (suite.function, asked(suite)) == ("f", [arguments])
    assert accepts(suite, right) == [True]
    assert accepts(suite, wrong) == [False]


@pytest.mark.parametrize(
    ("column", "unwraps"),
    [
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[9], [8]]}, [True, True]),
        ({"fn_name": "f", "inputs": [[1], [2]], "outputs": [[9], [8, 7]]}, [False, False]),
        ({"fn_name": "f", "inputs": ["1", "2"], "outputs": ["[9]", "[8]"]}, [False, False]),
        ([{"input": "1", "output": "[9]", "fn_name": "f"}, {"input": "2", "output": "[8]"}], [False, False]),
    ],
)
def test_only_an_output_that_apps_has_wrapped_is_unwrapped(column, unwraps):
    assert accepts(read_suite(column, {}), 9, 8) == unwraps


def test_the_text_of_a_functions_argument_may_hold_any_character():
    suite = read_suite([{"input": '"a\u2028b"\n2', "output": "1", "fn_name": "f"}], {})
    assert asked(suite) == [["a\u2028b", 2]]


def test_a_text_of_asserts_and_a_check_function_are_read():
    text = "import math\n# cases\nassert f(1) == 2\n\nassert f(2) == 4\n"
    assert asked(read_suite(text, {})) == [[1], [2]]
    check = '\n\nMETADATA = {"author": "x"}\n\n\ndef check(candidate):\n    "cases"\n'
    check += "    assert candidate([1]) == 2\n    assert candidate([]) is None, 'empty'\n\ncheck(f)\n"
    suite = read_suite(check, {"entry_point": "f"})
    assert (suite.function, asked(suite)) == ("f", [[[1]], [[]]])
    assert accepts(suite, 2, None) == [True, True]


@pytest.mark.parametrize(
    ("column", "columns", "why"),
    [
        ([], {}, "no tests"),
        ({"inputs": [], "outputs": []}, {}, "no tests"),
        ({"inputs": ["1"]}, {}, "`inputs` and `outputs`"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, {}, "1 inputs and 2 outputs"),
        ({"inputs": [[1]], "outputs": [2]}, {}, "without a function name must be text"),
        ([{"input": "1"}], {}, "must have `input` and `output`"),
        ("nonsense", {}, "neither JSON nor asserts"),
        ({"fn_name": "f", "inputs": [3], "outputs": [3]}, {}, "the list of its arguments"),
        ({"fn_name": "f", "inputs": ["a b"], "outputs": ["1"]}, {}, "not a JSON value"),
        (["assert f(x) == 1"], {}, "with literals; this is not: f(x) == 1"),
        (["assert f(1) == g(2)"], {}, "this is not"),
        (["assert f(1) == 1 and f(2) == 2"], {}, "this is not"),
        (["assert f(1)[0] == 1"], {}, "this is not"),
        (["assert f(1) is []"], {}, "this is not"),
        (["assert sorted(f(1)) is None"], {}, "this is not"),
        (FUNCTIONAL, {}, "need the function's name"),
        (FUNCTIONAL, {"metadata": "of 2024"}, "need the function's name"),
        ([FUNCTIONAL[0], {"input": "1", "output": "1", "testtype": "stdin"}], {"fn_name": "f"}, "others `functional`"),
        ([{**FUNCTIONAL[0], "fn_name": "f"}, {**FUNCTIONAL[1], "fn_name": "g"}], {}, "several functions: f, g"),
        (["assert f(1) in (1, 2)"], {}, "this is not"),
        (["assert f(n=1) == 1"], {}, "this is not"),
        (["assert isinstance(f(1), int)"], {}, "this is not"),
        (["for k in range(3):\n    assert f(k) == k"], {}, "only asserts can be tests"),
        (["import os; os.remove('x'); assert f(1) == 1"], {}, "only asserts can be tests"),
        (["x = 3"], {}, "only asserts"),
        (["assert f(1) =="], {}, "not Python"),
        (["assert f(1) == 1", "assert g(1) == 1"], {}, "several functions: f, g"),
        ("def check(candidate):\n    assert candidate(1) == 1", {}, "entry_point"),
        (["import math"], {}, "no asserts"),
        (3, {}, "must be a list"),
    ],
)
def test_an_unrunnable_test_suite_is_rejected_with_its_reason(column, columns, why):
    with pytest.raises(ValueError, match=why.replace("(", r"\(").replace(")", r"\)")):
        read_suite(column, columns)


def test_nothing_that_is_expected_is_given():
    suite = read_suite({"fn_name": "f", "inputs": [[1]], "outputs": ["the secret"]}, {})
    assert b"secret" not in suite.tests[0].given
