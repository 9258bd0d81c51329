"""Reads the times of INT96 columns exactly.

Impala, Hive and older versions of Spark write a time as INT96: a Julian day, and the nanoseconds of
that day. Its range is millions of years, and its precision a nanosecond, which no unit of numpy
combines. pyarrow converts INT96 to one unit for all rows: nanoseconds wrap around outside of the
years 1677 to 2262, and coarser units drop digits, both in silence.

Here a column is read twice, as seconds and as nanoseconds. Together they say what is stored: the
seconds never wrap around, and the difference to the nanoseconds is the fraction of a second, even
where the nanoseconds wrapped around.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.codecs.cells import null_mask, numbers
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import is_list

_PER_SECOND: Final = 1_000_000_000
#: All times with these seconds, and any fraction, fit into 64 bits of nanoseconds. The first value
#: of these 64 bits is NaT.
_FIRST_SECOND: Final = -9_223_372_036
_LAST_SECOND: Final = 9_223_372_035
#: Likewise for microseconds.
_MAX_SECONDS_OF_MICROSECONDS: Final = 9_223_372_036_000
#: Keys of the metadata of Spark, whose times have microseconds.
_SPARK_KEYS: Final = (b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata")
_ARROW_SCHEMA: Final = b"ARROW:schema"


def schema_with_unit(
    schema: pa.Schema, is_int96: Sequence[bool], units: dict[str, str]
) -> pa.Schema:
    """Return the columns of a file, in which the times of INT96 have another unit.

    Args:
        schema: the columns, in which INT96 is in nanoseconds.
        is_int96: for each Parquet column whether it is INT96.
        units: the new unit by the names of columns.
    """
    remaining = iter(is_int96)
    fields = []
    for field in schema:
        unit = units.get(field.name, "ns")
        fields.append(field.with_type(_type_with_unit(field.type, remaining, unit)))
    return pa.schema(fields, schema.metadata)


def _type_with_unit(type_: pa.DataType, is_int96: Iterator[bool], unit: str) -> pa.DataType:
    """Return a type in which the leaves of INT96 have another unit.

    Args:
        type_: of a column, or inside of one.
        is_int96: tells for each leaf whether it is INT96; those of ``type_`` are taken.
        unit: the new unit.
    """
    if pa.types.is_struct(type_):
        children = []
        for number in range(type_.num_fields):
            child = type_.field(number)
            children.append(child.with_type(_type_with_unit(child.type, is_int96, unit)))
        return pa.struct(children)
    if pa.types.is_map(type_):
        key = type_.key_field.with_type(_type_with_unit(type_.key_type, is_int96, unit))
        item = type_.item_field.with_type(_type_with_unit(type_.item_type, is_int96, unit))
        return pa.map_(key, item)
    if is_list(type_):
        value = type_.value_field.with_type(_type_with_unit(type_.value_type, is_int96, unit))
        if pa.types.is_fixed_size_list(type_):
            return pa.list_(value, type_.list_size)
        return pa.list_(value)
    is_leaf_of_int96 = next(is_int96, False)
    if is_leaf_of_int96 and pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp(unit, type_.tz)
    return type_


def stated_units(footer: pq.FileMetaData, names: Sequence[str]) -> dict[str, str]:
    """Return the units of columns of INT96 as their writer states them.

    Args:
        footer: of a file.
        names: the names of columns that have INT96.

    Returns:
        "us" or "ns", by name; columns of other writers are missing.
    """
    metadata = footer.metadata or {}
    if any(key in metadata for key in _SPARK_KEYS):
        return dict.fromkeys(names, "us")
    stored = _stored_arrow_schema(metadata.get(_ARROW_SCHEMA))
    if stored is None:
        return {}
    units = {}
    for name in names:
        positions = stored.get_all_field_indices(name)
        if len(positions) != 1:
            continue
        type_ = stored.field(positions[0]).type
        # the timestamps may be inside of lists or structs, whose text has those of their parts
        units[name] = "ns" if "timestamp[ns" in str(type_) else "us"
    return units


def _stored_arrow_schema(encoded: bytes | None) -> pa.Schema | None:
    """Return the schema of the table that pyarrow wrote; None without one, or if it is damaged."""
    if encoded is None:
        return None
    try:
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(encoded, validate=True)))
    except (pa.ArrowException, binascii.Error, ValueError, OSError):
        return None  # pyarrow ignores the entry, too


def exact_times(
    nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray, unit: str
) -> pa.ChunkedArray:
    """Return a column of INT96 in a unit that holds its times exactly.

    It may also be a column of lists, structs or maps with INT96.

    Args:
        nanoseconds: the column as pyarrow reads it in nanoseconds, which may have wrapped around.
        seconds: the same column in seconds.
        unit: "us" or "ns": the unit to try first.

    Raises:
        CellError: no unit holds all the times exactly.
    """
    fine = _as_one_array(nanoseconds)
    coarse = _as_one_array(seconds)
    return pa.chunked_array([_exact(fine, coarse, unit)])


def _as_one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the rows of a column as one array."""
    if column.num_chunks == 0:
        return pa.array([], column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks)


def _exact(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    """Return times exactly as :func:`exact_times`, for one chunk.

    Args:
        fine: the chunk in nanoseconds.
        coarse: the same chunk in seconds.
        unit: the unit to try first.

    Raises:
        CellError: no unit holds all the times exactly.
    """
    if fine.type == coarse.type:
        return fine  # it has no INT96
    if pa.types.is_timestamp(fine.type):
        return _exact_scalars(fine, coarse, unit)
    if pa.types.is_struct(fine.type):
        return _exact_structs(fine, coarse, unit)
    if pa.types.is_map(fine.type):
        return _exact_maps(fine, coarse, unit)
    return _exact_lists(fine, coarse, unit)


def _exact_structs(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    children = []
    fields = []
    # flatten() applies the nulls and the offset of the struct; field() would ignore the offset
    children_of_both = zip(fine.flatten(), coarse.flatten(), strict=True)
    for number, (fine_child, coarse_child) in enumerate(children_of_both):
        child = _exact(fine_child, coarse_child, unit)
        children.append(child)
        fields.append(fine.type.field(number).with_type(child.type))
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(null_mask(fine)))


def _exact_maps(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    offsets = _offsets(fine)
    keys = _exact_elements(fine.keys, coarse.keys, offsets, unit)
    items = _exact_elements(fine.items, coarse.items, offsets, unit)
    key_field = fine.type.key_field.with_type(keys.type)
    item_field = fine.type.item_field.with_type(items.type)
    pairs = pa.StructArray.from_arrays([keys, items], fields=[key_field, item_field])
    offsets_from_0 = (offsets - offsets[0]).astype(np.int32)
    buffers = [_validity(null_mask(fine)), pa.py_buffer(offsets_from_0)]
    map_type = pa.map_(keys.type, items.type)
    return pa.Array.from_buffers(map_type, len(fine), buffers, children=[pairs])


def _exact_lists(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    offsets = _offsets(fine)
    values = _exact_elements(fine.values, coarse.values, offsets, unit)
    buffers = [_validity(null_mask(fine)), pa.py_buffer(offsets - offsets[0])]
    list_type = pa.large_list(values.type)
    return pa.Array.from_buffers(list_type, len(fine), buffers, children=[values])


def _exact_elements(
    fine: pa.Array, coarse: pa.Array, offsets: npt.NDArray[np.int64], unit: str
) -> pa.Array:
    """Return the elements of lists or maps exactly, from the first of them to the last.

    Args:
        fine: elements in nanoseconds, also of rows that were sliced off.
        coarse: the same elements in seconds.
        offsets: where each list begins in them, and the end, shape ``(n_lists + 1,)``.
        unit: the unit to try first.

    Raises:
        CellError: no unit holds all the times exactly; its row is that of the list.
    """
    first = int(offsets[0])
    n_elements = int(offsets[-1]) - first
    try:
        return _exact(fine.slice(first, n_elements), coarse.slice(first, n_elements), unit)
    except CellError as error:
        row = int(np.searchsorted(offsets, first + error.row, "right")) - 1
        raise CellError(row, error.why) from error


def _offsets(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return where lists or maps begin in their elements, and the end: ``(n_lists + 1,)``."""
    if pa.types.is_fixed_size_list(lists.type):
        numbers_of_lists = np.arange(len(lists) + 1, dtype=np.int64) + lists.offset
        offsets: npt.NDArray[np.int64] = numbers_of_lists * lists.type.list_size
        return offsets
    if not len(lists):
        return np.zeros(1, np.int64)
    return numbers(lists.offsets).astype(np.int64)


def _validity(is_null: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return the bits of Arrow that say which values are not null."""
    return pa.array(~is_null).buffers()[1]


def _exact_scalars(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    """Return times in nanoseconds or microseconds, whichever holds all of them exactly.

    Args:
        fine: the times in nanoseconds.
        coarse: the same times in seconds.
        unit: the unit where both hold them.

    Raises:
        CellError: neither does.
    """
    is_null = null_mask(fine)
    nanoseconds = _integers(fine)
    seconds = _integers(coarse)
    fraction = nanoseconds - seconds * _PER_SECOND  # both wrap around alike
    fits_nanoseconds = _fits_nanoseconds(seconds, fraction) | is_null
    if unit == "ns" and fits_nanoseconds.all():
        return fine
    fits_microseconds = _fits_microseconds(seconds, fraction) | is_null
    if fits_microseconds.all():
        microseconds = seconds * 1_000_000 + fraction // 1000
        return pa.array(microseconds, pa.timestamp("us", fine.type.tz), mask=is_null)
    if fits_nanoseconds.all():
        return fine
    row = int(np.flatnonzero(~fits_nanoseconds)[0])
    time = _text_of(int(seconds[row]), int(fraction[row]))
    if not fits_microseconds[row]:
        raise CellError(
            row,
            f"no unit of datetime64 holds the time {time} exactly; "
            "leave the column out with columns=…",
        )
    other_row = int(np.flatnonzero(~fits_microseconds)[0])
    other_time = _text_of(int(seconds[other_row]), int(fraction[other_row]))
    raise CellError(
        row,
        f"the time {time} needs microseconds, and {other_time} in row {other_row} nanoseconds: "
        "no unit of datetime64 holds both exactly; leave the column out with columns=…",
    )


def _integers(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return the numbers of times, with any number for null."""
    return numbers(times.view(pa.int64()))


def _fits_nanoseconds(
    seconds: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether 64 bits of nanoseconds hold times of given seconds and nanoseconds beyond these."""
    is_inside = (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND)
    # the first and the last second are cut off in the middle
    is_in_first = (seconds == _FIRST_SECOND - 1) & (fraction > 145_224_192)
    is_in_last = (seconds == _LAST_SECOND + 1) & (fraction <= 854_775_807)
    fits: npt.NDArray[np.bool_] = is_inside | is_in_first | is_in_last
    return fits


def _fits_microseconds(
    seconds: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether 64 bits of microseconds hold times exactly; see :func:`_fits_nanoseconds`."""
    is_whole = fraction % 1000 == 0
    is_inside = np.abs(seconds) <= _MAX_SECONDS_OF_MICROSECONDS
    fits: npt.NDArray[np.bool_] = is_whole & is_inside
    return fits


def _text_of(seconds: int, fraction: int) -> str:
    """Return a time as text, with nine digits of the second."""
    return f"{np.datetime64(seconds, 's')}.{fraction:09}"


def has_far_times(nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray) -> bool:
    """Whether a column has times that nanoseconds do not hold.

    The arguments are those of :func:`exact_times`.
    """
    try:
        exact = exact_times(nanoseconds, seconds, "ns")
    except CellError:
        return True
    return bool(exact.type != nanoseconds.type)


def read_int96(
    source: Any, footer: pq.FileMetaData, index: int, leaves: Sequence[int], unit: str
) -> pa.Table:
    """Read Parquet columns of a row group, INT96 in a unit that may lose digits or wrap around.

    Args:
        source: an open file of pyarrow.
        footer: of the file.
        index: number of the row group in the file.
        leaves: numbers of the Parquet columns.
        unit: "s" or "ns".
    """
    file = pq.ParquetFile(
        source,
        metadata=footer,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
        pre_buffer=False,
    )
    return file.reader.read_row_group(index, column_indices=list(leaves), use_threads=False)
