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

_NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_MICROSECONDS_PER_SECOND: Final = 1_000_000
_NANOSECONDS_PER_MICROSECOND: Final = 1_000

# The times that ``datetime64[ns]`` holds: int64 nanoseconds, except for the first int64, which is
# NaT. They end within a second on either side.
#: The first and the last second of which it holds every nanosecond.
_FIRST_WHOLE_SECOND: Final = -9_223_372_036
_LAST_WHOLE_SECOND: Final = 9_223_372_035
#: In the second before the first whole one: its first nanosecond is NaT, later ones are times.
_FRACTION_OF_NAT: Final = 145_224_192
#: In the second after the last whole one: its last nanosecond.
_LAST_FRACTION: Final = 854_775_807

#: The largest number of seconds, before or after 1970, of which ``datetime64[us]`` holds every
#: microsecond, rounded down.
_MAX_SECONDS_OF_MICROSECONDS: Final = 9_223_372_036_000

#: Keys of the metadata that Spark writes, whose times have microseconds.
_SPARK_KEYS: Final = (b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata")
#: Key of the metadata in which pyarrow keeps the types of the table that it wrote.
_ARROW_SCHEMA: Final = b"ARROW:schema"


def schema_with_unit(
    schema: pa.Schema, is_int96: Sequence[bool], units: dict[str, str]
) -> pa.Schema:
    """Return the columns of a file with other units for the times of INT96.

    Args:
        schema: the columns of the file, as pyarrow reads them: INT96 in nanoseconds.
        is_int96: for each Parquet column whether it is INT96.
        units: the new unit, "us" or "ns", by the name of the column. Others keep nanoseconds.
    """
    is_int96_of_leaves = iter(is_int96)
    fields = []
    for field in schema:
        unit = units.get(field.name, "ns")
        fields.append(_field_with_unit(field, is_int96_of_leaves, unit))
    return pa.schema(fields, schema.metadata)


def _field_with_unit(field: pa.Field, is_int96: Iterator[bool], unit: str) -> pa.Field:
    """Return a field whose leaves of INT96 have another unit; see :func:`_type_with_unit`."""
    return field.with_type(_type_with_unit(field.type, is_int96, unit))


def _type_with_unit(type_: pa.DataType, is_int96: Iterator[bool], unit: str) -> pa.DataType:
    """Return a type whose leaves of INT96 have another unit.

    Args:
        type_: the type of a column, or a type within it.
        is_int96: tells for each leaf whether it is INT96. The items for the leaves of ``type_`` are
            taken from it.
        unit: the new unit, "us" or "ns".
    """
    if pa.types.is_struct(type_):
        children = []
        for number in range(type_.num_fields):
            children.append(_field_with_unit(type_.field(number), is_int96, unit))
        return pa.struct(children)
    if pa.types.is_map(type_):
        key = _field_with_unit(type_.key_field, is_int96, unit)
        item = _field_with_unit(type_.item_field, is_int96, unit)
        return pa.map_(key, item)
    if is_list(type_):
        element = _field_with_unit(type_.value_field, is_int96, unit)
        if pa.types.is_fixed_size_list(type_):
            return pa.list_(element, type_.list_size)
        return pa.list_(element)
    is_leaf_of_int96 = next(is_int96, False)
    if is_leaf_of_int96 and pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp(unit, type_.tz)
    return type_


def stated_units(footer: pq.FileMetaData, names: Sequence[str]) -> dict[str, str]:
    """Return the units of columns of INT96 that the writer of a file states.

    Args:
        footer: the footer of the file.
        names: the names of columns that have INT96.

    Returns:
        "us" or "ns", by the name of the column. A column is missing if the writer does not state
        its unit.
    """
    metadata = footer.metadata or {}
    is_of_spark = any(key in metadata for key in _SPARK_KEYS)
    if is_of_spark:
        return dict.fromkeys(names, "us")
    stored_schema = _stored_arrow_schema(metadata.get(_ARROW_SCHEMA))
    if stored_schema is None:
        return {}
    units = {}
    for name in names:
        positions = stored_schema.get_all_field_indices(name)
        if len(positions) != 1:
            continue
        # The times may be inside of lists or structs. The text of a type contains those of its
        # parts.
        text_of_type = str(stored_schema.field(positions[0]).type)
        units[name] = "ns" if "timestamp[ns" in text_of_type else "us"
    return units


def _stored_arrow_schema(encoded: bytes | None) -> pa.Schema | None:
    """Decode the schema of the table that pyarrow wrote.

    Args:
        encoded: the schema in base64; None without one.

    Returns:
        The schema; None without one, or if it is damaged, which pyarrow ignores, too.
    """
    if encoded is None:
        return None
    try:
        serialized = base64.b64decode(encoded, validate=True)
        return pa.ipc.read_schema(pa.BufferReader(serialized))
    except (pa.ArrowException, binascii.Error, ValueError, OSError):
        return None


def exact_times(
    nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray, unit: str
) -> pa.ChunkedArray:
    """Return a column of INT96 in a unit that holds its times exactly.

    The column has times, or lists, structs or maps with times.

    Args:
        nanoseconds: the column as pyarrow reads it in nanoseconds. They may have wrapped around.
        seconds: the column as pyarrow reads it in seconds.
        unit: "us" or "ns": the unit to take if both hold the times.

    Returns:
        The column in one chunk, all its times in nanoseconds or all in microseconds. Lists become
        large lists.

    Raises:
        CellError: no unit holds all the times exactly.
    """
    array = _exact(_as_one_array(nanoseconds), _as_one_array(seconds), unit)
    return pa.chunked_array([array])


def _as_one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the rows of a column as one array."""
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks)


# The functions below have these arguments in common. They raise CellError if no unit holds all the
# times exactly.
#
#   nanoseconds: the times, or the values with times, in nanoseconds, which may have wrapped around.
#   seconds: the same in seconds.
#   unit: "us" or "ns": the unit to take if both hold the times.


def _exact(nanoseconds: pa.Array, seconds: pa.Array, unit: str) -> pa.Array:
    """Return values of any type with exact times."""
    if nanoseconds.type == seconds.type:
        return nanoseconds  # Nothing in them is INT96, or its unit would differ.
    if pa.types.is_timestamp(nanoseconds.type):
        return _exact_scalars(nanoseconds, seconds, unit)
    if pa.types.is_struct(nanoseconds.type):
        return _exact_structs(nanoseconds, seconds, unit)
    if pa.types.is_map(nanoseconds.type):
        return _exact_maps(nanoseconds, seconds, unit)
    return _exact_lists(nanoseconds, seconds, unit)


def _exact_structs(nanoseconds: pa.Array, seconds: pa.Array, unit: str) -> pa.Array:
    """Return structs with exact times. Each field has a unit of its own."""
    children = []
    fields = []
    # flatten() applies the nulls and the offset of the struct. field() would ignore the offset.
    children_in_seconds = seconds.flatten()
    for number, child_in_nanoseconds in enumerate(nanoseconds.flatten()):
        child = _exact(child_in_nanoseconds, children_in_seconds[number], unit)
        children.append(child)
        fields.append(nanoseconds.type.field(number).with_type(child.type))
    is_null = pa.array(null_mask(nanoseconds))
    return pa.StructArray.from_arrays(children, fields=fields, mask=is_null)


def _exact_maps(nanoseconds: pa.Array, seconds: pa.Array, unit: str) -> pa.Array:
    """Return maps with exact times, as keys, as items, or in them."""
    offsets = _offsets(nanoseconds)
    keys = _exact_elements(nanoseconds.keys, seconds.keys, offsets, unit)
    items = _exact_elements(nanoseconds.items, seconds.items, offsets, unit)
    key_field = nanoseconds.type.key_field.with_type(keys.type)
    item_field = nanoseconds.type.item_field.with_type(items.type)
    pairs = pa.StructArray.from_arrays([keys, items], fields=[key_field, item_field])
    # Arrow stores a map as a list of pairs: which maps are null, and where each begins (int32).
    new_offsets = (offsets - offsets[0]).astype(np.int32)
    buffers = [_validity(null_mask(nanoseconds)), pa.py_buffer(new_offsets)]
    map_type = pa.map_(keys.type, items.type)
    return pa.Array.from_buffers(map_type, len(nanoseconds), buffers, children=[pairs])


def _exact_lists(nanoseconds: pa.Array, seconds: pa.Array, unit: str) -> pa.Array:
    """Return lists with exact times, as large lists: their offsets are int64, as those here."""
    offsets = _offsets(nanoseconds)
    values = _exact_elements(nanoseconds.values, seconds.values, offsets, unit)
    new_offsets = offsets - offsets[0]
    buffers = [_validity(null_mask(nanoseconds)), pa.py_buffer(new_offsets)]
    list_type = pa.large_list(values.type)
    return pa.Array.from_buffers(list_type, len(nanoseconds), buffers, children=[values])


def _exact_elements(
    nanoseconds: pa.Array, seconds: pa.Array, offsets: npt.NDArray[np.int64], unit: str
) -> pa.Array:
    """Return the elements of lists or maps with exact times.

    Args:
        nanoseconds: elements in nanoseconds. Some before or after may belong to no list here, as a
            slice of lists has all elements.
        seconds: the same elements in seconds.
        offsets: where each list begins in the elements, and where the last one ends, shape
            ``(n_lists + 1,)``.
        unit: "us" or "ns": the unit to take if both hold the times.

    Returns:
        The elements from the begin of the first list to the end of the last one.

    Raises:
        CellError: no unit holds all the times exactly. The row is the number of the list.
    """
    begin = int(offsets[0])
    n_elements = int(offsets[-1]) - begin
    try:
        return _exact(nanoseconds.slice(begin, n_elements), seconds.slice(begin, n_elements), unit)
    except CellError as error:
        # The list of an element is the last one that begins at the element or before.
        n_lists_begun = np.searchsorted(offsets, begin + error.row, "right")
        raise CellError(int(n_lists_begun) - 1, error.why) from error


def _offsets(lists: pa.Array) -> npt.NDArray[np.int64]:
    """Return where each list or map begins in its elements, and where the last one ends.

    Returns:
        Positions, shape ``(n_lists + 1,)``.
    """
    if pa.types.is_fixed_size_list(lists.type):
        numbers_of_lists = np.arange(len(lists) + 1, dtype=np.int64) + lists.offset
        offsets: npt.NDArray[np.int64] = numbers_of_lists * lists.type.list_size
        return offsets
    if not len(lists):
        return np.zeros(1, np.int64)
    return numbers(lists.offsets).astype(np.int64)


def _validity(is_null: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Return a bit for each value, as Arrow stores them: 0 for null."""
    return pa.array(~is_null).buffers()[1]


def _exact_scalars(nanoseconds: pa.Array, seconds: pa.Array, unit: str) -> pa.Array:
    """Return times in nanoseconds or microseconds, whichever holds all of them exactly."""
    is_null = null_mask(nanoseconds)
    whole_seconds = _integers(seconds)
    # The nanoseconds and the product wrap around by the same multiple of 2**64, or the difference
    # does: it is right in any case.
    fraction = _integers(nanoseconds) - whole_seconds * _NANOSECONDS_PER_SECOND
    fits_nanoseconds = _fits_nanoseconds(whole_seconds, fraction) | is_null
    if unit == "ns" and fits_nanoseconds.all():
        return nanoseconds
    fits_microseconds = _fits_microseconds(whole_seconds, fraction) | is_null
    if fits_microseconds.all():
        microseconds = whole_seconds * _MICROSECONDS_PER_SECOND
        microseconds += fraction // _NANOSECONDS_PER_MICROSECOND
        return pa.array(microseconds, pa.timestamp("us", nanoseconds.type.tz), mask=is_null)
    if fits_nanoseconds.all():
        return nanoseconds

    # Each unit has a time that it does not hold.
    row = int(np.flatnonzero(~fits_nanoseconds)[0])
    time = _text_of_time(int(whole_seconds[row]), int(fraction[row]))
    if not fits_microseconds[row]:
        raise CellError(
            row,
            f"no unit of datetime64 holds the time {time} exactly; "
            "leave the column out with columns=…",
        )
    other_row = int(np.flatnonzero(~fits_microseconds)[0])
    other_time = _text_of_time(int(whole_seconds[other_row]), int(fraction[other_row]))
    raise CellError(
        row,
        f"the time {time} needs microseconds, and {other_time} in row {other_row} nanoseconds: "
        "no unit of datetime64 holds both exactly; leave the column out with columns=…",
    )


def _integers(times: pa.Array) -> npt.NDArray[np.int64]:
    """Return times as numbers of their unit since 1970. The number of a null is arbitrary."""
    return numbers(times.view(pa.int64()))


def _fits_nanoseconds(
    seconds: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which times ``datetime64[ns]`` holds exactly.

    Args:
        seconds: whole seconds since 1970, rounded down.
        fraction: the nanoseconds of the time beyond these seconds, 0 to 999,999,999.
    """
    is_inside = (seconds >= _FIRST_WHOLE_SECOND) & (seconds <= _LAST_WHOLE_SECOND)
    is_in_second_before = (seconds == _FIRST_WHOLE_SECOND - 1) & (fraction > _FRACTION_OF_NAT)
    is_in_second_after = (seconds == _LAST_WHOLE_SECOND + 1) & (fraction <= _LAST_FRACTION)
    fits: npt.NDArray[np.bool_] = is_inside | is_in_second_before | is_in_second_after
    return fits


def _fits_microseconds(
    seconds: npt.NDArray[np.int64], fraction: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which times ``datetime64[us]`` holds exactly.

    Args:
        seconds: whole seconds since 1970, rounded down.
        fraction: the nanoseconds of the time beyond these seconds, 0 to 999,999,999.
    """
    is_whole = fraction % _NANOSECONDS_PER_MICROSECOND == 0
    is_inside = np.abs(seconds) <= _MAX_SECONDS_OF_MICROSECONDS
    fits: npt.NDArray[np.bool_] = is_whole & is_inside
    return fits


def _text_of_time(seconds: int, fraction: int) -> str:
    """Return a time as text: ISO 8601, with nine digits of the second.

    The arguments are a pair of those of :func:`_fits_nanoseconds`.
    """
    return f"{np.datetime64(seconds, 's')}.{fraction:09}"


def has_far_times(nanoseconds: pa.ChunkedArray, seconds: pa.ChunkedArray) -> bool:
    """Return whether a column of INT96 has times that ``datetime64[ns]`` does not hold.

    Args:
        nanoseconds: the column as pyarrow reads it in nanoseconds.
        seconds: the column as pyarrow reads it in seconds.
    """
    try:
        exact = exact_times(nanoseconds, seconds, "ns")
    except CellError:
        return True
    # exact_times() takes nanoseconds if it can. The text of a type contains those of its parts, of
    # which some may be no INT96, but microseconds in any case.
    return str(exact.type).count("timestamp[us") > str(nanoseconds.type).count("timestamp[us")


def read_int96(
    source: Any, footer: pq.FileMetaData, index: int, leaves: Sequence[int], unit: str
) -> pa.Table:
    """Read Parquet columns of a row group, with INT96 in a given unit.

    The times are those of pyarrow: they lose digits in seconds, and wrap around in nanoseconds.

    Args:
        source: the open file, for pyarrow.
        footer: the footer of the file.
        index: the number of the row group in the file.
        leaves: the numbers of the Parquet columns.
        unit: "s" or "ns".

    Raises:
        pyarrow.ArrowException: the file is damaged.
        OSError: the file cannot be read, or is damaged.
    """
    file = pq.ParquetFile(
        source,
        metadata=footer,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
        pre_buffer=False,
    )
    # ParquetFile.read_row_group() takes names of columns. A name with a dot may be that of several.
    return file.reader.read_row_group(index, column_indices=list(leaves), use_threads=False)
