"""Values become those of the declared data type only where they stay equal."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from data_stack_croissant.values import UNFIT, bounding_box, cast_value
from hypothesis import given
from hypothesis import strategies as st

ZONE = datetime.timezone(datetime.timedelta(hours=2))
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.integers(-300, 300).map(float)
DTYPES = ["int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64", "bool"]


@given(
    number=NUMBERS | NUMBERS.map(str) | st.integers(-300, 300).map(np.int64),
    dtype=st.sampled_from(DTYPES),
)
def test_a_number_is_equal_rounded_or_refused(number: Any, dtype: str) -> None:
    given: Any = number.item() if isinstance(number, np.generic) else number
    if isinstance(number, str):
        given = float(number) if set(number) - set("+-0123456789") else int(number)
    try:
        cast = cast_value(number, np.dtype(dtype))
    except UNFIT:
        return

    assert cast.dtype == dtype
    if cast.dtype.kind == "f" and isinstance(given, float):
        assert cast == given or np.isnan(given) or cast == np.dtype(dtype).type(given)
        assert np.isinf(cast) == np.isinf(given)
    else:
        assert Fraction(cast.item()) == Fraction(given)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ("300", "int16", 300),
        (" -5 ", "int8", -5),
        ("5.0", "int8", 5),
        (True, "int64", 1),
        (7.0, "uint8", 7),
        (Decimal("7"), "uint8", 7),
        ("2e3", "float32", 2000),
        ("0.1", "float32", np.float32(0.1)),
        (1, "bool", True),
        ("False", "bool", False),
        ("2024-01-01", "M8[us]", np.datetime64("2024-01-01")),
        ("2024-01-01T12:30+02:00", "M8[us]", np.datetime64("2024-01-01T10:30")),
        ("2024-01-01 12:30:00.5Z", "M8[us]", np.datetime64("2024-01-01T12:30:00.5")),
        (datetime.date(2024, 1, 1), "M8[us]", np.datetime64("2024-01-01")),
        (datetime.datetime(2024, 1, 1, tzinfo=ZONE), "M8[us]", np.datetime64("2023-12-31T22:00")),
        (np.datetime64("2024-01-01", "ns"), "M8[us]", np.datetime64("2024-01-01")),
        ("01:02:03", "m8[us]", np.timedelta64(3723, "s")),
        (datetime.time(1), "m8[us]", np.timedelta64(1, "h")),
        (np.timedelta64(5, "ms"), "m8[us]", np.timedelta64(5, "ms")),
    ],
)
def test_a_value_has_the_declared_dtype(value: Any, dtype: str, expected: Any) -> None:
    cast = cast_value(value, np.dtype(dtype))

    assert cast == expected
    assert np.asarray(cast).dtype == dtype


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "int8"),
        (-1, "uint8"),
        (300.7, "int16"),
        (float("inf"), "int64"),
        (np.uint64(2**63 + 1), "int64"),
        (70000.0, "float16"),
        (16777217, "float32"),
        (2, "bool"),
        ("1_000", "int64"),
        ("1_000", "float64"),
        ("\u0661\u0662", "int64"),
        ("1e400", "float64"),
        ("1e-400", "float64"),
        ("maybe", "bool"),
        ("2024-01-01T10:00+99:00", "M8[us]"),
        ("2024-01-01T10:00+01:99", "M8[us]"),
        ("0.5", "int64"),
        (np.timedelta64(1, "s"), "int64"),
        (b"x", "float64"),
        (1706659200, "M8[us]"),
        ("now", "M8[us]"),
        (np.datetime64("2024-01-01T00:00:00.000000001"), "M8[us]"),
        ("2024-01-01T00:00:00.0000001", "M8[us]"),
        (np.timedelta64(1, "ns"), "m8[us]"),
        (datetime.time(1, tzinfo=ZONE), "m8[us]"),
        (5, "m8[us]"),
    ],
)
def test_a_value_that_would_change_is_refused(value: Any, dtype: str) -> None:
    with pytest.raises(UNFIT):
        cast_value(value, np.dtype(dtype))


@pytest.mark.parametrize(
    "value", ["1 2.5 3 4", b"1 2.5 3 4", [1, 2.5, "3", 4], np.array([1, 2.5, 3, 4])]
)
def test_a_bounding_box_is_four_numbers(value: Any) -> None:
    box = bounding_box(value)

    assert box.dtype == np.float64
    assert box.tolist() == [1.0, 2.5, 3.0, 4.0]


@pytest.mark.parametrize(
    "value",
    [
        "1 2 3",
        "1_0 2 3 4",
        [None, 1, 2, 3],
        [1, 2, 3, 4, 5],
        [[1], [2], [3], [4]],
        7,
        "1 2 3 1e400",
    ],
)
def test_what_is_not_four_numbers_is_no_box(value: Any) -> None:
    with pytest.raises(UNFIT):
        bounding_box(value)
