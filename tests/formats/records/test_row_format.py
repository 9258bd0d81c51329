"""The format of records of one size: how their bytes become values."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import codec_of
from data_stack.formats.records.row_format import RowFormat

HEADER = b"head"


def format_of(column: ColumnType) -> RowFormat:
    layout = codec_of(column.type).derive_layout(column)
    assert layout is not None
    return RowFormat.from_layout(layout, column.dtype)


def with_header(shape: tuple[int, ...], stored: str, value: str) -> RowFormat:
    stored_dtype = np.dtype(stored)
    n_bytes = int(np.prod(shape)) * stored_dtype.itemsize
    return RowFormat(
        record_bytes=len(HEADER) + n_bytes,
        header_bytes=len(HEADER),
        shape=shape,
        stored_dtype=stored_dtype,
        value_dtype=np.dtype(value),
        item_dtype=np.dtype(f"V{n_bytes}") if shape else stored_dtype,
    )


def test_integers_without_header_become_python_numbers() -> None:
    row_format = format_of(ColumnType("i64"))
    data = struct.pack("<3q", 7, -1, 2**40)

    values = row_format.stack_values(row_format.view_items(3, data))

    assert row_format.list_values(values) == [7, -1, 2**40]
    assert {type(value) for value in row_format.list_values(values)} == {int}


def test_numbers_are_cast_to_the_declared_dtype() -> None:
    row_format = format_of(ColumnType("i64", "uint8"))

    values = row_format.stack_values(row_format.view_items(2, struct.pack("<2q", 7, 255)))

    assert values.dtype == np.uint8
    assert values.tolist() == [7, 255]


@pytest.mark.parametrize("declared", ["int8", "uint8", "int16", "uint32", "int32", "uint64", ">i4"])
def test_integers_become_what_a_cast_returns(declared: str) -> None:
    row_format = format_of(ColumnType("i64", declared))
    numbers = [0, 1, -1, 127, 128, -128, 255, 2**31 - 1, 2**31, 2**40 + 5, -(2**63), 2**63 - 1]
    stored = np.array(numbers, "<i8")

    items = row_format.view_items(len(numbers), stored.tobytes())
    values = row_format.stack_values(items.copy())

    assert values.dtype == np.dtype(declared)
    np.testing.assert_array_equal(values, stored.astype(declared))


def test_floating_point_numbers_are_cast() -> None:
    row_format = format_of(ColumnType("i64", "float32"))

    values = row_format.stack_values(row_format.view_items(2, struct.pack("<2q", 7, -255)))

    assert values.dtype == np.float32
    assert values.tolist() == [7.0, -255.0]


def test_arrays_are_read_behind_their_headers() -> None:
    row_format = with_header((2, 3), "<i2", "<i2")
    rows = np.arange(12, dtype="<i2").reshape(2, 2, 3)
    data = HEADER + rows[0].tobytes() + HEADER + rows[1].tobytes()

    stacked = row_format.stack_values(row_format.view_items(2, data).copy())

    np.testing.assert_array_equal(stacked, rows)
    np.testing.assert_array_equal(row_format.view_values(2, data), rows)
    assert row_format.value_bytes == 12


def test_a_number_with_a_header_becomes_an_independent_array() -> None:
    row_format = with_header((), "<f4", "<f4")
    data = HEADER + np.float32(1.5).tobytes() + HEADER + np.float32(2.5).tobytes()
    stacked = row_format.stack_values(row_format.view_items(2, data).copy())

    first, second = row_format.list_values(stacked)

    assert (first.shape, second.shape) == ((), ())
    assert (first.item(), second.item()) == (1.5, 2.5)
    assert not np.shares_memory(first, stacked)


def test_bytes_that_are_no_booleans_become_true() -> None:
    row_format = format_of(ColumnType("array", "bool", (3,)))
    rows = np.array([[0, 1, 2]], np.uint8)
    record = codec_of("array").encode(np.zeros(3, bool))
    data = record[: row_format.header_bytes] + rows.tobytes()

    values = row_format.stack_values(row_format.view_items(1, data).copy())

    assert values.dtype == bool
    assert values.view(np.uint8).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_no_records_need_no_bytes(shape: tuple[int, ...]) -> None:
    row_format = with_header(shape, "<i2", "<i4")

    values = row_format.stack_values(row_format.view_items(0, b""))

    assert values.shape == (0, *shape)
    assert values.dtype == np.int32
    assert row_format.view_values(0, b"").shape == (0, *shape)
