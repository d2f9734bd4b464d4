"""Lines become columns; what is damaged is passed over."""

import json
from typing import Any

from headrace.services.orchestrator.dashboard.readers.numbers import MetricRows, parse_rows
from headrace.services.orchestrator.dashboard.routes.series import series_view


def lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def shown(rows: MetricRows) -> list[dict[str, Any]]:
    return [rows.row(position) for position in range(len(rows))]


def test_numbers_and_flags_are_columns_words_are_not() -> None:
    rows = parse_rows(lines({"step": 1, "a": 0.5, "b": True, "c": "word"}, {"step": 2, "a": 2, "b": False, "d": None}))
    assert shown(rows) == [{"step": 1, "a": 0.5, "b": 1.0}, {"step": 2, "a": 2.0, "b": 0.0}]


def test_a_name_may_begin_late_and_be_null() -> None:
    rows = parse_rows(lines({"step": 1, "a": None}, {"step": 2, "a": 3, "late": 1.5}))
    assert shown(rows) == [{"step": 1}, {"step": 2, "a": 3.0, "late": 1.5}]


def test_an_integer_column_may_become_a_fraction() -> None:
    many = [{"step": step, "a": 0 if step < 900 else 0.5} for step in range(1, 1000)]
    rows = parse_rows(lines(*many))
    assert rows.columns["a"].sum() == 50.0


def test_the_last_of_several_lines_of_a_step_counts() -> None:
    rows = parse_rows(lines({"step": 1, "a": 1}, {"step": 2, "a": 2}, {"step": 1, "a": 9}))
    assert shown(rows) == [{"step": 1, "a": 9.0}, {"step": 2, "a": 2.0}]


def test_a_damaged_line_costs_only_itself() -> None:
    data = lines({"step": 1, "a": 1}) + b'{"step": 2, "a"\n[1]\n\x00\xff\n{"a": 4}\n{"step": "x"}\n'
    assert shown(parse_rows(data + lines({"step": 5, "a": 5})))[-1] == {"step": 5, "a": 5.0}
    assert list(parse_rows(data).steps) == [1]


def test_trained_tokens_are_summed_over_steps_that_have_none_too() -> None:
    rows = parse_rows(lines({"step": 1, "trained_tokens": 5}, {"step": 2}, {"step": 3, "trained_tokens": 7}))
    total = rows.column("trained_tokens_total")
    assert total is not None and total.tolist() == [5, 5, 12] and rows.column("absent") is None


def test_the_axes_of_time_and_tokens_are_not_rounded() -> None:
    times, tokens = (1_779_000_123.456, 1_779_000_131.5), (123_456_789, 3)
    rows = parse_rows(
        lines(*({"step": at, "t": times[at], "trained_tokens": tokens[at], "loss": 0.123456789} for at in range(2)))
    )
    series = series_view(rows, ["t", "trained_tokens_total", "loss"], 100, None, None, ()).series
    assert (series["t"].y, series["trained_tokens_total"].y) == (times, (123_456_789, 123_456_792))
    assert series["loss"].y == (0.1234568, 0.1234568)
