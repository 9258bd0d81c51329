"""Numbers become those of another dtype where nothing is lost, and are refused otherwise; writers
test the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

from data_stack.codecs.fitting import as_dtype

NUMBERS = npst.integer_dtypes(endianness="=") | npst.floating_dtypes(endianness="=", sizes=(32, 64))


@given(array=npst.arrays(NUMBERS, npst.array_shapes(max_side=3)), dtype=NUMBERS)
def test_numbers_are_unchanged_or_refused(
    array: np.ndarray[Any, Any], dtype: np.dtype[Any]
) -> None:
    try:
        cast = as_dtype(array, dtype)
    except (TypeError, ValueError):
        return

    assert cast.dtype == dtype
    assert all(
        one == other or (one != one and other != other)
        for one, other in zip(cast.flat, array.flat, strict=True)
    )


def test_only_whole_floats_become_integers_and_only_where_asked() -> None:
    assert as_dtype(np.array([3.0]), np.dtype("i4"), whole_floats=True).tolist() == [3]
    with pytest.raises(
        TypeError, match="expected values of dtype int32, got values of dtype float64"
    ):
        as_dtype(np.array([3.0]), np.dtype("i4"))
    with pytest.raises(ValueError, match=r"0\.5.* does not fit"):
        as_dtype(np.array([0.5]), np.dtype("i4"), whole_floats=True)
