"""Sets of values: what may be a member, and which values of a column are among the members."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.membership import are_members, check_members, elements_of
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column

from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import PredicateError

VALUES = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(), st.booleans())


@given(values=st.lists(VALUES, max_size=20), members=st.lists(VALUES, max_size=5))
def test_a_value_is_a_member_if_python_says_so(values: list[Any], members: list[Any]) -> None:
    answers = are_members(object_column(*values), check_members(members, "test"))

    assert answers.tolist() == [value in members for value in values]


def test_scalars_of_numpy_become_members_of_python() -> None:
    members = check_members([np.int8(3), np.str_("a"), np.float32(0.5)], "test")

    assert {type(member) for member in members} == {int, str, float}
    assert members == {3, "a", 0.5}


def test_nan_is_no_member() -> None:
    assert check_members([math.nan, np.float32("nan"), 1], "test") == {1}


def test_times_become_times_of_numpy() -> None:
    members = check_members([datetime.date(2020, 1, 1), datetime.timedelta(1)], "test")

    # In old versions of numpy, equal times of two units have other hashes.
    time_by_kind = {time.dtype.kind: time for time in members}
    assert time_by_kind == {"M": np.datetime64("2020-01-01"), "m": np.timedelta64(1, "D")}


def test_times_are_compared_as_instants() -> None:
    members = check_members([datetime.datetime(2020, 1, 1), None], "test")

    answers = are_members(np.array(["2020-01-01", "2020-01-02", "NaT"], "M8[D]"), members)

    assert answers.tolist() == [True, False, True]


@pytest.mark.parametrize("values", ["abc", b"abc", 3, [[1]], [np.zeros(2)]])
def test_members_must_be_a_list_of_hashable_values(values: Any) -> None:
    with pytest.raises(ConfigError, match="in_set needs"):
        check_members(values, "in_set")


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        (None, []),
        ([1, None], [1, None]),
        ((), []),
        ("ab", ["ab"]),
        (b"ab", [b"ab"]),
        (np.array([[1, 2], [3, 4]]), [1, 2, 3, 4]),
    ],
)
def test_a_value_has_elements(value: Any, elements: list[Any]) -> None:
    assert elements_of(value).tolist() == elements


@pytest.mark.parametrize("value", [3, np.array(3), {"a": 1}])
def test_a_scalar_has_no_elements(value: Any) -> None:
    with pytest.raises(PredicateError, match="use in_set"):
        elements_of(value)


def test_times_beyond_the_unit_of_a_member_do_not_match() -> None:
    nanosecond = np.timedelta64(1, "ns")
    member = np.datetime64("2000-01-01", "ns") + 384 * nanosecond
    # In nanoseconds, this time would wrap around to the member.
    far = np.datetime64("2584-07-20T23:34:33.709552", "us")
    column = np.array([far, np.datetime64("2000-01-01", "us")])

    assert not are_members(column, check_members([member], "test")).any()
    assert are_members(column, check_members([member - 384 * nanosecond], "test")).tolist() == [
        False,
        True,
    ]
