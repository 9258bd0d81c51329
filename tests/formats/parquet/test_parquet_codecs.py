"""What codecs store comes back as it was, whatever its dtype, shape and nulls; what is no value of a field is refused."""

from __future__ import annotations

import datetime
import io
import zlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sizes import FULL, sized
from table_strategies import DECIMALS
from writing import bytes_of

from data_stack.codecs import Codec
from data_stack.formats.parquet.codecs import (
    CellError,
    CompressedNdarrayCodec,
    FieldCodec,
    JpegCodec,
    NdarrayCodec,
    NestedCodec,
    PngCodec,
    ScalarCodec,
)
from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.schema import Field
from data_stack.testing.comparing import assert_same

quick = settings(max_examples=sized(8, 100))
NUMBERS = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
TIMES = ["datetime64[D]", "datetime64[s]", "datetime64[ms]", "datetime64[us]", "datetime64[ns]"]
DURATIONS = [
    "timedelta64[D]",
    "timedelta64[s]",
    "timedelta64[ms]",
    "timedelta64[us]",
    "timedelta64[ns]",
]
ZONE = datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2024, 1, 1, 12)


def column_of(field: Field, values: Any, *, has_nulls: bool | None = None) -> GroupColumn:
    cells = field.cells.encode_column(field, values)
    assert cells.type == field.arrow_type()
    pq.write_table(pa.table({"x": cells}), file := io.BytesIO())
    if len(cells):
        cells = pq.read_table(file).column("x").combine_chunks()
    return field.cells.column(
        field, cells, has_nulls=bool(cells.null_count) if has_nulls is None else has_nulls
    )


def taken(column: GroupColumn, n_rows: int = 2) -> npt.NDArray[Any]:
    return column.take(np.arange(n_rows))


def check_round_trip(field: Field, values: Sequence[Any]) -> None:
    """Rows come back by value and by batch, in any order, whether or not the dataset has nulls; they are the caller's own."""
    for has_nulls in {any(value is None for value in values), True} if field.nullable else {False}:
        column = column_of(field, values, has_nulls=has_nulls)

        assert column.n_bytes >= 0
        for row, value in enumerate(values):
            assert_same(column.value(row), value)
        rows = np.array([*range(len(values)), *reversed(range(len(values)))], np.int64)
        batch = column.take(rows)
        assert len(batch) == len(rows)
        if has_nulls:
            assert batch.dtype == object
            assert batch.ndim == 1
        for found, row in zip(batch, rows.tolist(), strict=True):
            assert_same(found, values[row])
        if batch.dtype != object:
            batch.view(np.uint8)[...] = 1  # the caller's own, writable
        for found in batch if batch.dtype == object else []:
            if isinstance(found, np.ndarray):
                assert found.flags.writeable
                found.reshape(-1).view()[...] = found.reshape(-1)[::-1]
        for row, value in enumerate(values):
            assert_same(column.value(row), value)


def scalars(dtype: str) -> st.SearchStrategy[Any]:
    kind = np.dtype(dtype)
    if kind.kind in "mM":
        return st.integers(-30_000, 30_000).map(
            lambda day: np.array(day, f"{kind.kind}8[D]").astype(kind)[()]
        )
    return hnp.from_dtype(kind, allow_nan=True).map(kind.type)


CODECS: list[FieldCodec] = [NdarrayCodec(), CompressedNdarrayCodec()]
LISTS = ["bool", "uint8", "int64", "float16", "float64", "datetime64[us]", "timedelta64[ns]"]
ARRAYS = ["bool", "uint16", "float32", "complex64", "datetime64[ns]", "timedelta64[s]"]
SHAPES = st.tuples(st.integers(0, 3), st.just(2), st.integers(0, 3))
FIELDS: list[tuple[Field, st.SearchStrategy[Any]]] = [
    *(
        (Field("x", dtype, (), None, True), scalars(dtype))
        for dtype in [*NUMBERS, *TIMES, *DURATIONS]
    ),
    *(
        (
            Field("x", Decimal, (), ScalarCodec(f"decimal({each.precision},{each.scale})"), True),
            values,
        )
        for each, values in DECIMALS.items()
    ),
    *(
        (
            Field("x", dtype, (None,), None, True),
            hnp.arrays(dtype, st.integers(0, 5), elements=scalars(dtype)),
        )
        for dtype in LISTS
    ),
    *(
        (Field("x", dtype, (None, 2, None), codec, True), hnp.arrays(dtype, SHAPES))
        for dtype in ARRAYS
        for codec in (CODECS if FULL or dtype == "uint16" else CODECS[:1])
    ),
]


@pytest.mark.parametrize(
    ("field", "values"),
    FIELDS,
    ids=[f"{each.dtype} {each.shape} {each.codec}" for each, _ in FIELDS],
)
@quick
@given(data=st.data())
def test_values_come_back_exactly(
    field: Field, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    check_round_trip(field, data.draw(st.lists(st.none() | values, max_size=8)))


# ---------------------------------------------------------------------- scalars


@pytest.mark.parametrize(
    ("dtype", "type_"),
    [("uint8", "smallint"), ("uint64", "decimal(20,0)"), ("float16", "float"), ("bool", "tinyint")],
)
def test_a_wider_type_of_spark_gives_back_the_dtype(dtype: str, type_: str) -> None:
    kind = np.dtype(dtype)
    low, high = (
        (0, 1)
        if kind.kind == "b"
        else (np.finfo(kind).min, 1.5)
        if kind.kind == "f"
        else (0, np.iinfo(kind).max)
    )
    values = np.array([low, high], kind)

    column = column_of(Field("x", dtype, (), ScalarCodec(type_)), values)

    assert_same(taken(column), values)


def test_times_come_back_in_utc_from_every_zone() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=5))
    field = Field("t", "datetime64[us]", (), ScalarCodec("timestamp"))

    column = column_of(field, [datetime.datetime(2024, 3, 1, 7, 30, 0, 5, zone), NOON])

    assert column.value(0) == np.datetime64("2024-03-01T02:30:00.000005")
    assert column.value(1) == np.datetime64("2024-01-01T12:00:00")  # without a zone it is in UTC


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_time_of_day_is_a_duration_since_midnight(unit: str) -> None:
    field = Field("t", f"timedelta64[{unit}]", (), ScalarCodec(f"time[{unit}]"), True)
    values = np.array([0, 3_723_000, 86_399_999], "m8[ms]").astype(f"m8[{unit}]")

    by_column = column_of(field, values)
    one_by_one = column_of(field, [datetime.time(1, 2, 3), None])

    assert_same(taken(by_column, 3), values)
    assert one_by_one.value(0) == np.timedelta64(3723, "s")
    assert one_by_one.value(1) is None


def test_a_missing_time_is_null() -> None:
    field = Field("t", "datetime64[us]", (), None, True)
    times = np.array(["2020-01-01", "NaT"], "M8[us]")

    by_column, one_by_one = column_of(field, times), column_of(field, list(times))

    for column in (by_column, one_by_one):
        assert taken(column).tolist() == [times[0], None]


@pytest.mark.parametrize(
    ("field", "wrong", "why"),
    [
        (Field("x", "int8"), 300, "300 does not fit into dtype int8"),
        (Field("x", "int64"), 1.0, "int64.*float 1.0"),
        (Field("x", "float32"), np.float64(0.1), "does not fit"),
        (Field("x", str), "\ud800", "surrogates"),
        (Field("x", Decimal), Decimal("NaN"), "NaN"),
        (Field("x", Decimal, (), ScalarCodec("decimal(5,2)")), Decimal("1.234"), "more decimals"),
        (Field("x", "datetime64[D]"), np.datetime64("2020-01-01T12:00"), "does not fit"),
        (Field("x", "int32"), None, "it is null, but the field is not nullable"),
        (Field("x", "int32"), np.zeros(3, np.int32), r"scalar.*\(3,\)"),
        (
            Field("x", "int32", (3,)),
            np.zeros(2, np.int32),
            r"expected shape \(3,\), got \(2,\)",
        ),
        (Field("x", str, (None,)), ["text", 5], "str.*int 5"),
        (
            Field("x", "float32", (2, 3)),
            np.ma.MaskedArray(np.zeros((2, 3), np.float32), True),
            "mask",
        ),
        (Field("x", str, (2,), NdarrayCodec()), ["a", 5], "str.*int 5"),
        (Field("x", bytes, (1,), NdarrayCodec()), [b"a\0"], "zeros at the end"),
        (Field("x", object, (), NestedCodec({"struct": {"a": "int"}})), {"a": 1, "b": 2}, "'b'"),
        (Field("x", object, (), NestedCodec({"struct": {"a": "int"}})), {"a": 1.5}, "'a'.*1.5"),
        (Field("x", "datetime64[us]"), NOON.replace(tzinfo=ZONE), "a time zone in a column of"),
        (Field("x", "datetime64[us]", (None,)), [NOON.replace(tzinfo=ZONE)], "a time zone in a"),
        (Field("x", "datetime64[D]", (None,)), [NOON], "does not fit"),
        (Field("x", "datetime64[D]", (None,), NdarrayCodec()), [NOON], "does not fit"),
        (Field("x", "timedelta64[us]"), datetime.time(1, tzinfo=ZONE), "has a time zone"),
        (Field("x", "int64"), np.timedelta64(1, "s"), "int64.*timedelta64"),
        (Field("x", "float32"), np.uint64(2**63 + 1), "does not fit"),
        (Field("x", Decimal), True, "Decimal, got bool"),
        (Field("x", "int64", (None,)), [True], "truth values"),
        (Field("x", "float32", (None, 1), NdarrayCodec()), np.array([[True]]), "truth values"),
    ],
)
def test_a_misfit_value_is_refused_with_its_row(field: Field, wrong: Any, why: str) -> None:
    plain: dict[Any, Any] = {Decimal: Decimal(1), np.dtype(object): {"a": 1}}
    shape = tuple(4 if size is None else size for size in field.shape)
    good = plain.get(field.dtype) or np.zeros(shape, field.dtype)[()]

    with pytest.raises(CellError, match=why) as caught:
        field.cells.encode_column(field, [good, good, wrong, good])

    assert caught.value.row == 2


# ---------------------------------------------------------------------- lists


def test_a_null_in_one_list_leaves_other_lists_numeric() -> None:
    field = Field("x", "int64", (None,), None, True)
    cells = pa.array([[1, None], [2**53 + 1], None, []], pa.list_(pa.int64()))

    column = field.cells.column(field, cells, has_nulls=True)

    assert column.value(0).tolist() == [1, None]
    assert_same(column.value(1), np.array([2**53 + 1]))
    assert column.value(2) is None
    assert [each if each is None else each.tolist() for each in taken(column, 4)] == [
        [1, None],
        [2**53 + 1],
        None,
        [],
    ]


@pytest.mark.parametrize(
    ("field", "wrong", "why"),
    [
        (Field("x", "int32", (2,)), [1, 2, 3], r"\(2,\).* 3 el"),
        (Field("x", "uint8", (None,)), [3, 300], "300 does not fit"),
    ],
)
def test_a_misfit_list_is_reported_with_its_row(field: Field, wrong: list[int], why: str) -> None:
    with pytest.raises(CellError, match=why) as caught:
        field.cells.column(field, pa.array([[1, 2], wrong]), has_nulls=False)

    assert caught.value.row == 1


# ---------------------------------------------------------------------- arrays in cells


def cell_of(value: npt.NDArray[Any], codec: FieldCodec, **options: Any) -> bytes:
    """A cell as numpy writes it."""
    if isinstance(codec, NdarrayCodec):
        return bytes_of(np.save, value, **options)
    return bytes_of(np.savez_compressed, arr=value)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "wrong",
    [np.zeros((2, 3)), np.zeros((3, 2), np.float32), np.zeros(6, np.float32), np.array(["a"])],
    ids=["dtype", "shape", "dimensions", "text"],
)
def test_a_cell_unlike_its_field_is_reported_with_its_row(
    codec: FieldCodec, wrong: npt.NDArray[Any]
) -> None:
    field = Field("x", "float32", (2, 3), codec)
    good = cell_of(np.zeros((2, 3), np.float32), codec)
    column = field.cells.column(
        field, pa.array([good, cell_of(wrong, codec), good], pa.binary()), has_nulls=False
    )

    for read in (lambda: taken(column, 3), lambda: column.value(1)):
        with pytest.raises(CellError, match=r"float32|\(2, 3\)|shape") as caught:
            read()

        assert caught.value.row == 1
    assert_same(column.value(2), np.zeros((2, 3), np.float32))


# ---------------------------------------------------------------------- images


@pytest.mark.parametrize("codec", [PngCodec(), JpegCodec()])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_an_undecodable_image_is_reported_and_others_are_read(codec: Codec, is_fixed: bool) -> None:
    field = Field("x", "uint8", (4, 5, 3) if is_fixed else (None, None, 3), codec)
    good = codec.encode(np.zeros((4, 5, 3), np.uint8))
    grey = codec.encode(np.zeros((4, 5), np.uint8))
    column = field.cells.column(
        field, pa.array([good, good[:-20], b"", b"no image", grey], pa.binary()), has_nulls=False
    )

    for row in (1, 2, 3, 4):
        with pytest.raises(CellError) as caught:
            column.value(row)
        with pytest.raises(CellError) as of_batch:
            column.take(np.array([0, row]))

        assert caught.value.row == of_batch.value.row == row
        assert caught.value.why
    assert_same(column.value(0), np.zeros((4, 5, 3), np.uint8))


# ---------------------------------------------------------------------- nested values

BOXES = {"list": {"list": "float"}}
NESTED = {
    "struct": {
        "name": "string",
        "boxes": BOXES,
        "when": "timestamp_ntz[ns]",
        "tags": {"map": ["string", "int"]},
    }
}


def test_nested_values_come_back_exactly_and_are_the_callers_own() -> None:
    field = Field("x", object, (), NestedCodec(NESTED), True)
    time = np.datetime64("2024-01-01T00:00:00.123456789")
    value = {
        "name": "a",
        "boxes": [[1.5, 2.0], [], None],
        "when": time,
        "tags": [("k", 1), ("l", None)],
    }
    empty: dict[str, Any] = {"name": None, "boxes": None, "when": None, "tags": []}

    column = column_of(field, [value, None, empty])

    assert taken(column, 3).tolist() == [value, None, empty]
    column.value(0)["boxes"].append(1)
    taken(column)[0]["name"] = "b"
    assert column.value(0) == value
    assert column.take(np.array([2, 0])).tolist() == [empty, value]


# ---------------------------------------------------------------------- what other writers store


@pytest.mark.parametrize(
    ("field", "cells"),
    [
        (Field("x", str), pa.array([b"\xff"])),
        (Field("x", "int64"), pa.array(["a"])),
        (Field("x", "int64"), pa.array([[1]])),
        (Field("x", "int64", (None,)), pa.array([1])),
        (Field("x", "datetime64[us]"), pa.array([1])),
        (Field("x", "float32", (2,), NdarrayCodec()), pa.array([1.5])),
    ],
)
def test_a_column_of_another_kind_or_invalid_text_is_refused(field: Field, cells: pa.Array) -> None:
    with pytest.raises(ValueError, match=r"expected|differ|UTF"):
        field.cells.column(field, cells, has_nulls=False)


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_a_null_in_a_required_field_is_reported_by_row(codec: FieldCodec | None) -> None:
    field = Field("x", "float32", (2,), codec)
    type_ = field.arrow_type()
    cells = pa.concat_arrays(
        [field.cells.encode_column(field, [np.zeros(2, np.float32)]), pa.nulls(1, type_)]
    )

    with pytest.raises(CellError, match="null") as caught:
        field.cells.column(field, cells, has_nulls=False)

    assert caught.value.row == 1


# ---------------------------------------------------------------------- PNG, whether OpenCV or Pillow decodes it


def pixels_of(shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
    return np.random.default_rng(0).integers(
        np.iinfo(dtype).max, size=shape, dtype=dtype, endpoint=True
    )


def test_coloured_images_of_16_bits_keep_them_only_if_asked() -> None:
    pixels = pixels_of((6, 5, 3), "uint16")

    record = PngCodec(deep=True).encode(pixels)

    assert np.array_equal(PngCodec(deep=True).decode(record), pixels)
    assert PngCodec().decode(record).dtype == np.uint8
    assert PngCodec().decode(record).shape == (6, 5, 3)
    with pytest.raises(TypeError, match="uint16"):
        PngCodec().encode(pixels)


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4)])
def test_a_file_that_is_cut_or_changed_anywhere_is_refused(shape: tuple[int, ...]) -> None:
    codec = PngCodec()
    record = codec.encode(pixels_of(shape))
    assert np.array_equal(codec.decode(record), pixels_of(shape))
    step = max(1, len(record) // 150)
    damaged = [record[:end] for end in range(0, len(record), step)]
    damaged += [
        record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
        for at in [*range(60), *range(60, len(record), step)]
    ]

    for each in damaged:
        with pytest.raises(ValueError, match=r"png|chunk|image"):
            codec.decode(each)


def test_pixels_that_do_not_decompress_are_refused_despite_their_checksum() -> None:
    record = PngCodec().encode(pixels_of((6, 5)))
    start = record.index(b"IDAT")
    size = int.from_bytes(record[start - 4 : start], "big")
    body = b"IDAT" + bytes(size)
    hostile = (
        record[:start] + body + zlib.crc32(body).to_bytes(4, "big") + record[start + size + 8 :]
    )

    with pytest.raises(ValueError, match="damaged"):
        PngCodec().decode(hostile)
