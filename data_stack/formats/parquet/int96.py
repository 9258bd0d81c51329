"""Reads the times of INT96 columns exactly.

Impala, Hive and older versions of Spark write a time as INT96: a Julian day, and the nanoseconds of that day. Its range is
millions of years, and its precision a nanosecond, which no unit of numpy combines. pyarrow converts INT96 to one unit for all
rows: nanoseconds wrap around outside of the years 1677 to 2262, and coarser units drop digits, both in silence.

Here a column is read twice, as seconds and as nanoseconds. Together they say what is stored: the seconds never wrap around, and
the difference to the nanoseconds is the fraction of a second, even where the nanoseconds wrapped around.
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
#: All times with these seconds, and any fraction, fit into 64 bits of nanoseconds; the first value is NaT.
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
    """The columns of a file, in which the times of INT96 have another unit.

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
    """A type, in which the leaves of INT96 have another unit; ``is_int96`` has one item for each leaf."""
    if pa.types.is_struct(type_):
        children = [type_.field(number) for number in range(type_.num_fields)]
        return pa.struct(
            [child.with_type(_type_with_unit(child.type, is_int96, unit)) for child in children]
        )
    if pa.types.is_map(type_):
        key = type_.key_field.with_type(_type_with_unit(type_.key_type, is_int96, unit))
        item = type_.item_field.with_type(_type_with_unit(type_.item_type, is_int96, unit))
        return pa.map_(key, item)
    if is_list(type_):
        value = type_.value_field.with_type(_type_with_unit(type_.value_type, is_int96, unit))
        is_fixed = pa.types.is_fixed_size_list(type_)
        return pa.list_(value, type_.list_size) if is_fixed else pa.list_(value)
    is_changed = next(is_int96, False) and pa.types.is_timestamp(type_) and type_.unit == "ns"
    return pa.timestamp(unit, type_.tz) if is_changed else type_


def stated_units(footer: pq.FileMetaData, names: Sequence[str]) -> dict[str, str]:
    """The units of columns of INT96 as their writer states them: "us" or "ns", by name; columns of other writers are missing.

    Args:
        footer: of a file.
        names: the names of columns that have INT96.
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
        if len(positions) == 1:
            units[name] = "ns" if "timestamp[ns" in str(stored.field(positions[0]).type) else "us"
    return units


def _stored_arrow_schema(encoded: bytes | None) -> pa.Schema | None:
    """The schema of the table that pyarrow wrote; None without one, or if it is damaged."""
    if encoded is None:
        return None
    try:
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(encoded, validate=True)))
    except (pa.ArrowException, binascii.Error, ValueError, OSError):
        return None  # pyarrow ignores the entry, too


def exact_times(
    nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray, unit: str
) -> pa.ChunkedArray:
    """A column of INT96, or of lists, structs or maps with them, in a unit that holds its times exactly.

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
    """The rows of a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _exact(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    """As :func:`exact_times`, for one chunk."""
    type_ = fine.type
    if type_ == coarse.type:
        return fine  # it has no INT96
    if pa.types.is_timestamp(type_):
        return _exact_scalars(fine, coarse, unit)
    is_null = null_mask(fine)
    if pa.types.is_struct(type_):
        # flatten() applies the nulls and the offset of the struct; field() would ignore the offset
        children = [
            _exact(*twins, unit) for twins in zip(fine.flatten(), coarse.flatten(), strict=True)
        ]
        fields = [
            type_.field(number).with_type(child.type) for number, child in enumerate(children)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(is_null))
    offsets = _offsets(fine)
    first = int(offsets[0])
    n_elements = int(offsets[-1]) - first
    offsets = offsets - first

    def elements(fine_child: pa.Array, coarse_child: pa.Array) -> pa.Array:
        fine_part = fine_child.slice(first, n_elements)
        coarse_part = coarse_child.slice(first, n_elements)
        try:
            return _exact(fine_part, coarse_part, unit)
        except CellError as error:
            row = int(np.searchsorted(offsets, error.row, "right")) - 1
            raise CellError(row, error.why) from error

    if pa.types.is_map(type_):
        keys = elements(fine.keys, coarse.keys)
        items = elements(fine.items, coarse.items)
        pairs = pa.StructArray.from_arrays(
            [keys, items],
            fields=[type_.key_field.with_type(keys.type), type_.item_field.with_type(items.type)],
        )
        buffers = [_validity(is_null), pa.py_buffer(offsets.astype(np.int32))]
        map_type = pa.map_(keys.type, items.type)
        return pa.Array.from_buffers(map_type, len(fine), buffers, children=[pairs])
    values = elements(fine.values, coarse.values)
    buffers = [_validity(is_null), pa.py_buffer(offsets)]
    list_type = pa.large_list(values.type)
    return pa.Array.from_buffers(list_type, len(fine), buffers, children=[values])


def _offsets(lists: pa.Array) -> npt.NDArray[np.int64]:
    """The offsets of lists or maps in their elements, shape ``(n_lists + 1,)``."""
    offsets = np.zeros(1, np.int64)
    if pa.types.is_fixed_size_list(lists.type):
        offsets = (np.arange(len(lists) + 1, dtype=np.int64) + lists.offset) * lists.type.list_size
    elif len(lists):
        offsets = numbers(lists.offsets).astype(np.int64)
    return offsets


def _validity(is_null: npt.NDArray[np.bool_]) -> pa.Buffer:
    """The bits of Arrow that say which values are not null."""
    return pa.array(~is_null).buffers()[1]


def _exact_scalars(fine: pa.Array, coarse: pa.Array, unit: str) -> pa.Array:
    """Times in nanoseconds or microseconds, whichever holds all of them exactly; the preferred one if both do."""
    is_null = null_mask(fine)
    nanoseconds = _integers(fine)
    seconds = _integers(coarse)
    fraction = nanoseconds - seconds * _PER_SECOND  # both wrap around alike
    fits_nanoseconds = _fits_nanoseconds(seconds, fraction) | is_null
    if unit == "ns" and fits_nanoseconds.all():
        return fine
    fits_microseconds = (fraction % 1000 == 0) & (
        np.abs(seconds) <= _MAX_SECONDS_OF_MICROSECONDS
    ) | is_null
    if fits_microseconds.all():
        microseconds = seconds * 1_000_000 + fraction // 1000
        return pa.array(microseconds, pa.timestamp("us", fine.type.tz), mask=is_null)
    if fits_nanoseconds.all():
        return fine
    row = int(np.flatnonzero(~fits_nanoseconds)[0])
    shown = _text_of(int(seconds[row]), int(fraction[row]))
    if fits_microseconds[row]:
        other = int(np.flatnonzero(~fits_microseconds)[0])
        precise = _text_of(int(seconds[other]), int(fraction[other]))
        raise CellError(
            row,
            f"the time {shown} needs microseconds, and {precise} in row {other} nanoseconds: "
            "no unit of datetime64 holds both exactly; leave the column out with columns=…",
        )
    raise CellError(
        row,
        f"no unit of datetime64 holds the time {shown} exactly; leave the column out with columns=…",
    )


def _integers(times: pa.Array) -> npt.NDArray[np.int64]:
    """The numbers of times, with any number for null."""
    return numbers(times.view(pa.int64()))


def _fits_nanoseconds(
    seconds: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Whether 64 bits of nanoseconds hold times, given by their seconds and the nanoseconds beyond."""
    is_inside = (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND)
    # the first and the last second are cut off in the middle
    is_in_first = (seconds == _FIRST_SECOND - 1) & (fraction > 145_224_192)
    is_in_last = (seconds == _LAST_SECOND + 1) & (fraction <= 854_775_807)
    fits: npt.NDArray[np.bool_] = is_inside | is_in_first | is_in_last
    return fits


def _text_of(seconds: int, fraction: int) -> str:
    """A time as text, with nine digits of the second."""
    return f"{np.datetime64(seconds, 's')}.{fraction:09}"


def has_far_times(nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray) -> bool:
    """Whether a column has times that nanoseconds do not hold; the arguments are those of :func:`exact_times`."""
    try:
        found = exact_times(nanoseconds, seconds, "ns")
    except CellError:
        return True
    return bool(found.type != nanoseconds.type)


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
