"""What a reader infers from the first row of a transform, and how it checks the values of all."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.transform_inference import changed_fields, infer_field
from data_stack_petastorm.transform_values import check_column, with_nulls
from layer_laws import object_column

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema


@pytest.mark.parametrize(
    ("before", "value", "dtype"),
    [
        ("uint8", np.float32(0.5), "float32"),
        ("uint8", 3, "uint8"),
        ("float32", 3, "float32"),
        ("float32", 0.5, "float32"),
        ("uint8", 0.5, "float64"),
        ("int64", True, "bool"),
        (str, 3, "int64"),
        ("int64", "a", str),
        ("int64", b"a", bytes),
        ("int64", Decimal(1), Decimal),
        ("int64", None, "int64"),
        ("int64", {"a": 1}, "int64"),
    ],
)
def test_a_field_takes_the_dtype_of_the_value(before: Any, value: Any, dtype: Any) -> None:
    inferred = infer_field(Field("x", before), value)

    assert inferred.dtype == (Decimal if dtype is Decimal else np.dtype(dtype))


@pytest.mark.parametrize(
    ("before", "value_shape", "after"),
    [
        ((2, 3), (2, 3), (2, 3)),
        ((2, 3), (4, 3), (4, 3)),
        ((None, 3), (7, 3), (None, 3)),
        ((None, 3), (7, 4), (None, 4)),
        ((2, 3), (6,), (6,)),
        ((None, 3), (6,), (None,)),
        ((2,), (), ()),
    ],
)
def test_sizes_that_varied_may_still_vary(
    before: tuple[int | None, ...], value_shape: tuple[int, ...], after: tuple[int | None, ...]
) -> None:
    inferred = infer_field(Field("x", "float32", before), np.zeros(value_shape, "float32"))

    assert inferred.shape == after


def test_only_undeclared_fields_that_came_back_are_changed() -> None:
    schema = Schema("s", [Field(name, "int64") for name in ("same", "new", "declared", "gone")])
    values = {"same": 1, "new": 0.5, "declared": 0.5}

    changed = changed_fields(schema, values, except_names=["declared"])

    assert [(field.name, field.dtype) for field in changed] == [("new", np.dtype("float64"))]


def test_fitting_values_are_not_copied() -> None:
    values = np.zeros((4, 2), "float32")

    assert check_column(Field("x", "float32", (2,)), values) is values


@pytest.mark.parametrize(
    ("field", "values", "dtype"),
    [
        (Field("x", "float32"), [0.5, 1], "float32"),
        (Field("x", "uint8"), np.array([1, 255]), "uint8"),
        (Field("x", "int64", nullable=True), [1, None], object),
        (Field("x", "int64", (None,)), [np.zeros(1, int), np.zeros(2, int)], object),
        (Field("x", "int64", (None,)), [[1], [2]], "int64"),
        (Field("x", str), ["a", np.str_("b")], object),
        (Field("x", Decimal), [Decimal(1)], object),
        (Field("x", "float32"), [], object),
    ],
)
def test_values_become_a_column(field: Field, values: Any, dtype: Any) -> None:
    column = check_column(field, values)

    assert column.dtype == np.dtype(dtype)
    assert len(column) == len(values)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Field("x", "uint8"), 300),
        (Field("x", "int64"), 0.5),
        (Field("x", "int64"), None),
        (Field("x", "float32"), 1e300),
        (Field("x", "float32", (2,)), np.zeros(3, "float32")),
        (Field("x", str), b"a"),
        (Field("x", str, (None,)), ["a", 1]),
        (Field("x", Decimal), 0.5),
    ],
)
def test_a_value_that_would_change_is_refused(field: Field, value: Any) -> None:
    with pytest.raises(ConfigError, match="field 'x' for row 0"):
        check_column(field, [value])


def test_missing_times_of_a_frame_become_none() -> None:
    times = np.array(["2020-01-01", "NaT"], "M8[us]")

    nullable = with_nulls(Field("x", "datetime64[us]", nullable=True), times)
    without_nulls = with_nulls(Field("x", "datetime64[us]"), times)

    assert nullable.tolist() == object_column(times[0], None).tolist()
    assert without_nulls is times
