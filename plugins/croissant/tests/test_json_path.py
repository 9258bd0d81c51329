"""Paths into JSON are parsed into steps, and lead to values in the order of the document."""

from __future__ import annotations

from typing import Any

import pytest
from data_stack_croissant.json_path import Step, find_in_json, parse_path

from data_stack.exception import ConfigError

DOCUMENT: Any = {"a": [{"b": 1}, {"b": 2, "c": {"b": 3}}], "b": 4, "odd name": [5]}


def test_a_path_is_parsed_into_steps() -> None:
    assert parse_path("$.a[*]['c'].d[0]") == (
        Step("name", name="a"),
        Step("all"),
        Step("name", name="c"),
        Step("name", name="d"),
        Step("index", index=0),
    )


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [DOCUMENT]),
        ("$.a[*].b", [1, 2]),
        ("a[1].c.b", [3]),
        ("$..b", [4, 1, 2, 3]),
        ("$['odd name'][*]", [5]),
        ("$.a[7].b", []),
        ("$.missing", []),
    ],
)
def test_a_path_leads_to_values_in_order(path: str, values: list[Any]) -> None:
    assert find_in_json(DOCUMENT, parse_path(path)) == values


@pytest.mark.parametrize("path", ["$.a[?(@.b)]", "$.a[0:2]", "$..a..b", "$." + "a" * 1001])
def test_other_steps_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="only names"):
        parse_path(path)
