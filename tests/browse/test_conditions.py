"""Which rows of a table fulfil a condition, and which conditions are valid."""

from __future__ import annotations

import numpy as np
import pytest

import data_stack
from data_stack.browse.conditions import Condition, parse_conditions
from data_stack.browse.table import Table
from data_stack.exception import ConfigError


@pytest.fixture
def table() -> Table:
    """Columns 0: size, 1: name, 2: an image, which cannot be filtered."""
    columns = {
        "size": np.array([0.1, 0.5, np.nan, 2.0]),
        "name": np.array(["Cat", "dog", None, "tomcat"], dtype=object),
        "image": np.zeros((4, 8, 8), np.uint8),
    }
    return Table(data_stack.from_numpy(columns))


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (Condition(0, low="0.5"), [1, 3]),
        (Condition(0, high="0.5"), [0]),
        (Condition(0, high="0.5", closed=True), [0, 1]),
        (Condition(0, values=("2", None)), [2, 3]),
        (Condition(1, values=("dog", None)), [1, 2]),
        (Condition(contains="CAT"), [0, 3]),
        (Condition(contains="2"), [3]),
    ],
)
def test_conditions_select_rows(table: Table, condition: Condition, rows: list[int]) -> None:
    values = table.read(condition.columns(table), 0, 4)

    assert np.flatnonzero(condition.mask(table, values)).tolist() == rows


@pytest.mark.parametrize("text", ["True", "true", "TRUE", "1"])
def test_a_searched_boolean_is_found_in_any_case(text: str) -> None:
    table = Table(data_stack.from_numpy({"is_cat": np.array([True, False, True])}))
    condition = Condition(contains=text)

    values = table.read(condition.columns(table), 0, 3)

    assert np.flatnonzero(condition.mask(table, values)).tolist() == [0, 2]


@pytest.mark.parametrize(
    "text",
    [
        '[{"column": 0}]',
        '[{"column": 0, "low": "1", "contains": "1"}]',
        '[{"column": 0, "values": [1]}]',
        '[{"column": 0, "values": "1"}]',
        '[{"column": 0, "low": "1", "closed": 1}]',
        '[{"column": true, "low": "1"}]',
        '[{"column": 2, "low": "1"}]',
        '[{"low": "1"}]',
        '[{"color": "red"}]',
        '{"column": 0}',
        "[0]",
    ],
)
def test_invalid_conditions_are_refused(table: Table, text: str) -> None:
    with pytest.raises(ConfigError, match="conditions"):
        parse_conditions(text, table)
