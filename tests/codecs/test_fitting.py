"""Values become those of a declared dtype and shape where nothing is lost, and are refused otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

from data_stack.codecs.fitting import as_dtype, fit_array

NUMBERS = npst.integer_dtypes(endianness="=") | npst.floating_dtypes(endianness="=", sizes=(32, 64))


@given(array=npst.arrays(NUMBERS, npst.array_shapes(max_side=3)), dtype=NUMBERS)
def test_numbers_are_unchanged_or_refused(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    try:
        cast = as_dtype(array, dtype)
    except (TypeError, ValueError):
        return

    assert cast.dtype == dtype
    assert all(one == other or (one != one and other != other) for one, other in zip(cast.flat, array.flat, strict=True))


def test_floats_become_integers_only_where_that_is_said_and_they_have_no_fraction() -> None:
    assert as_dtype(np.array([3.0]), np.dtype("i4"), whole_floats=True).tolist() == [3]
    with pytest.raises(TypeError, match="dtype int32 is expected, this one is of dtype float64"):
        as_dtype(np.array([3.0]), np.dtype("i4"))
    with pytest.raises(ValueError, match=r"0\.5.* does not fit"):
        as_dtype(np.array([0.5]), np.dtype("i4"), whole_floats=True)


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "expected"),
    [
        (3, "u1", (), 3),
        ([1, 2], "f4", (None,), [1.0, 2.0]),
        (0.1, "f4", (), float(np.float32(0.1))),
        (np.array([1, 2], "i8"), "i2", (2,), [1, 2]),
        (np.array([1, 2], "i2"), "f4", (2,), [1.0, 2.0]),
        ([], "f4", (0,), []),
    ],
)
def test_a_value_becomes_what_is_declared(value: Any, dtype: str, shape: tuple[int | None, ...], expected: Any) -> None:
    array = fit_array(value, np.dtype(dtype), shape)

    assert array.dtype == dtype
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "error"),
    [
        (300, "u1", (), ValueError),
        (-1, "u8", (), ValueError),
        (0.5, "i4", (), TypeError),
        (np.float64(0.5), "f4", (), TypeError),
        (np.zeros(2, "i4"), "f4", (2,), TypeError),
        ([1, 2], "i4", (3,), ValueError),
        ("text", "i4", (), TypeError),
        ([[1], [2, 3]], "i4", None, ValueError),
        (np.ma.masked_array([1], [True]), "i8", (1,), TypeError),
    ],
)
def test_a_value_that_would_lose_something_is_refused(value: Any, dtype: str, shape: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fit_array(value, np.dtype(dtype), shape)
