"""Numbers that a scalar codec accepts for a column, and those that it refuses."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.codecs import ScalarCodec
from data_stack_petastorm.lenient_scalar_codec import fit_number
from data_stack_petastorm.unischema import UnischemaField


@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    "value",
    [
        10**400,
        -(10**400),
        Decimal("1e400"),
        np.complex64(1 + 2j),
        np.timedelta64(5, "s"),
        np.timedelta64(1),
    ],
)
def test_a_number_that_no_column_holds_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit|expected a number"):
        fit_number(np.dtype(dtype), value)


@pytest.mark.parametrize("value", [math.inf, np.float32(-math.inf), Decimal("Infinity")])
def test_infinity_fits_into_floats_and_not_into_integers(value: Any) -> None:
    fitted = fit_number(np.dtype("float32"), value)

    assert math.isinf(fitted)
    with pytest.raises(ValueError, match="does not fit"):
        fit_number(np.dtype("int64"), value)


def test_a_number_too_large_for_a_field_names_the_field() -> None:
    field = UnischemaField("speed", np.float64, (), None, False)

    with pytest.raises(ValueError, match="Field 'speed': 1000"):
        ScalarCodec("double").encode(field, 10**400)
