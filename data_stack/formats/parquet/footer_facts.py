"""Checks that a footer agrees with itself and its file, before pyarrow reads data by it.

pyarrow's C++ code ends the process for some crafted footers. The words of the format: a file has
*row groups*; each of them has a *column chunk* of each Parquet column. A field of dtype object may
have several Parquet columns, one for each leaf of its type.

The format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.formats.parquet.thrift import LONG, Struct, read_struct

_Integers = npt.NDArray[np.int64]

#: The facts of a column chunk: those of :class:`_Chunk`.
_CHUNK_DTYPE: Final = np.dtype(
    [
        ("n_values", np.int64),
        ("n_nulls", np.int64),
        ("n_bytes", np.int64),
        ("start", np.int64),
        ("n_raw_bytes", np.int64),
    ]
)
#: Limit of the levels of a nested schema. pyarrow reads schemas of fewer levels only.
_MAX_SCHEMA_DEPTH: Final = 100

# The structs of the format, with the numbers of their fields. ``LONG`` marks an integer of 64 bits,
# as :mod:`data_stack.formats.parquet.thrift` does.

# Field numbers of FileMetaData.
_SCHEMA: Final = 2
_N_ROWS: Final = LONG | 3
_ROW_GROUPS: Final = 4

# Field numbers of RowGroup.
_GROUP_COLUMNS: Final = 1
_GROUP_N_ROWS: Final = LONG | 3

# Field numbers of SchemaElement.
_ELEMENT_TYPE: Final = 1
_ELEMENT_LENGTH: Final = 2
_ELEMENT_REPETITION: Final = 3
_ELEMENT_NAME: Final = 4
_ELEMENT_N_CHILDREN: Final = 5

# Field numbers of ColumnChunk.
_CHUNK_METADATA: Final = 3
_CHUNK_ENCRYPTION: Final = (8, 9)

# Field numbers of ColumnMetaData.
_TYPE: Final = 1
_COMPRESSION: Final = 4
_N_VALUES: Final = LONG | 5
_N_RAW_BYTES: Final = LONG | 6
_N_BYTES: Final = LONG | 7
_START_OF_DATA: Final = LONG | 9
_START_OF_DICTIONARY: Final = LONG | 11
_STATISTICS: Final = 12
_SIZES: Final = 16

# Field numbers of Statistics: two pairs of bounds, as older and newer writers store them.
_BOUNDS: Final = (1, 2, 5, 6)
_N_NULLS: Final = LONG | 3

# Field numbers of SizeStatistics.
_TEXT_BYTES: Final = LONG | 1
_REPETITION_HISTOGRAM: Final = 2
_DEFINITION_HISTOGRAM: Final = 3

# Repetitions of schema elements.
_OPTIONAL: Final = 1
_REPEATED: Final = 2

# Physical types.
_BOOLEAN: Final = 0
_INT32: Final = 1
_INT64: Final = 2
_INT96: Final = 3
_FLOAT: Final = 4
_DOUBLE: Final = 5
_BYTE_ARRAY: Final = 6
_FIXED_BYTES: Final = 7
#: Bytes per value by physical type; 0 where values differ in their size. The schema states those of
#: ``_FIXED_BYTES``.
_VALUE_BYTES: Final = {
    _BOOLEAN: 1,
    _INT32: 4,
    _INT64: 8,
    _INT96: 12,
    _FLOAT: 4,
    _DOUBLE: 8,
    _BYTE_ARRAY: 0,
}
#: The compressions of the format, from UNCOMPRESSED (0) to LZ4_RAW (7).
_COMPRESSIONS: Final = range(8)


@dataclass(frozen=True)
class FooterFacts:
    """The row groups and columns of a file according to its footer.

    A column is a Parquet column here.

    Attributes:
        columns: the numbers of the columns of each field, by its name.
        is_required: whether no value of a column may be missing, shape ``(n_columns,)``.
        value_bytes: bytes per value; 0 where values differ in their size, shape ``(n_columns,)``.
        is_int96: whether a column has times of INT96, shape ``(n_columns,)``.
        n_rows: number of rows of each row group, shape ``(n_row_groups,)``.
        chunks: the column chunks, shape ``(n_row_groups, n_columns)``, with the fields of
            :class:`_Chunk`, all int64.
    """

    columns: dict[str, list[int]]
    is_required: npt.NDArray[np.bool_]
    value_bytes: _Integers
    is_int96: npt.NDArray[np.bool_]
    n_rows: _Integers
    chunks: npt.NDArray[np.void]

    def values_per_row(self) -> dict[str, int | None]:
        """Return how many values each row has, by field: for lists their length.

        Returns:
            The number if it is the same in all row groups on average, else -1, as for a file
            without rows. None if a value of the field may be null. Of a field with several columns,
            the first one counts.
        """
        with_rows = np.flatnonzero(self.n_rows)
        if not len(with_rows):
            return dict.fromkeys(self.columns, -1)
        chunks = self.chunks[with_rows]
        has_nulls_or_unknown = (chunks["n_nulls"] != 0).any(axis=0)
        may_be_null = has_nulls_or_unknown & ~self.is_required
        counts: dict[str, int | None] = {}
        for name, numbers in self.columns.items():
            if may_be_null[numbers].any():
                counts[name] = None
                continue
            n_values = chunks["n_values"][:, numbers[0]]
            counts[name] = _common_ratio(n_values, self.n_rows[with_rows])
        return counts


def _common_ratio(n_values: _Integers, n_rows: _Integers) -> int:
    """Return the values per row, if it is the same integer for all row groups; else -1."""
    per_row = int(n_values[0] // n_rows[0])
    if (n_values == per_row * n_rows).all():
        return per_row
    return -1


class _ParquetColumn(NamedTuple):
    """A column of the schema.

    Attributes:
        path: the names of the elements of the schema that lead to it, itself included.
        type: its physical type.
        value_bytes: bytes per value; 0 where values differ in their size.
        definition_level: how many elements of the path may be missing: optional or repeated ones.
        repetition_level: how many elements of the path are repeated.
    """

    path: tuple[str, ...]
    type: int
    value_bytes: int
    definition_level: int
    repetition_level: int


class _Chunk(NamedTuple):
    """The facts of a column chunk.

    Attributes:
        n_values: number of values, nulls and all elements of lists included.
        n_nulls: number of nulls; -1 where it is unknown.
        n_bytes: stored bytes, so compressed.
        start: offset of the chunk in the file, in bytes.
        n_raw_bytes: bytes before compression.
    """

    n_values: int
    n_nulls: int
    n_bytes: int
    start: int
    n_raw_bytes: int


def footer_facts(footer: bytes, file_bytes: int | None) -> FooterFacts:
    """Parse a footer, and check that it agrees with itself and its file.

    Args:
        footer: the serialized ``FileMetaData``, without length and magic.
        file_bytes: size of the file in bytes; None for a footer that describes other files.

    Raises:
        ValueError: the footer is damaged; the message says how.
    """
    try:
        metadata, _ = read_struct(footer)
        columns = _list_columns(metadata[_SCHEMA])
        groups = metadata.get(_ROW_GROUPS, [])
        n_rows = _read_row_counts(groups, metadata[_N_ROWS])
        chunks: list[list[_Chunk]] = []
        for number, group in enumerate(groups):
            chunks.append(_read_chunks(group, number, columns, file_bytes))
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        # A field is missing, or has another type than in the format.
        raise ValueError(f"its footer lacks a required field ({error!s:.60})") from error

    columns_of_fields: dict[str, list[int]] = {}
    for number, column in enumerate(columns):
        field_name = column.path[0]
        columns_of_fields.setdefault(field_name, []).append(number)
    return FooterFacts(
        columns=columns_of_fields,
        is_required=np.array([column.definition_level == 0 for column in columns], np.bool_),
        value_bytes=np.array([column.value_bytes for column in columns], np.int64),
        is_int96=np.array([column.type == _INT96 for column in columns], np.bool_),
        n_rows=n_rows,
        chunks=np.array(chunks, _CHUNK_DTYPE).reshape(len(groups), len(columns)),
    )


def _read_row_counts(groups: Sequence[Struct], n_rows_of_file: int) -> _Integers:
    """Read and check the number of rows of each row group, shape ``(n_row_groups,)``.

    Raises:
        ValueError: a number is negative, or their sum is not that of the file.
    """
    n_rows = np.array([group[_GROUP_N_ROWS] for group in groups], np.int64)
    if (n_rows < 0).any():
        number = int(np.argmax(n_rows < 0))
        raise ValueError(f"its footer is damaged: row group {number} has {n_rows[number]} rows")
    if n_rows.sum() != n_rows_of_file:
        raise ValueError(f"it states {n_rows_of_file} rows, its row groups have {n_rows.sum()}")
    return n_rows


def _list_columns(elements: Sequence[Struct]) -> list[_ParquetColumn]:
    """List the columns of a schema.

    Args:
        elements: the elements of the schema, a tree in depth-first order. The first one is the
            root. An element without children is a column.

    Raises:
        ValueError: the elements are not such a tree, or it is too deep.
    """
    root = elements[0]
    remaining = iter(elements[1:])
    n_children = root.get(_ELEMENT_N_CHILDREN, 0)
    columns = list(
        _iterate_columns(remaining, n_children, path=(), definition_level=0, repetition_level=0)
    )
    if next(remaining, None) is not None:
        raise ValueError("its schema is not a tree of columns")
    return columns


def _iterate_columns(
    remaining: Iterator[Struct],
    n_children: int,
    *,
    path: tuple[str, ...],
    definition_level: int,
    repetition_level: int,
) -> Iterator[_ParquetColumn]:
    """Iterate over the columns below an element of the schema.

    Args:
        remaining: the elements after this one, in depth-first order. All that are below this one
            are taken from it.
        n_children: how many children the element has.
        path: the names of the elements that lead to this one, itself included.
        definition_level: how many of these may be missing.
        repetition_level: how many of these are repeated.

    Raises:
        ValueError: the schema is nested too deeply.
    """
    if len(path) > _MAX_SCHEMA_DEPTH:
        raise ValueError("its schema is nested too deeply")
    for element in itertools.islice(remaining, n_children):
        repetition = element.get(_ELEMENT_REPETITION, 0)
        inner_path = (*path, element[_ELEMENT_NAME].decode())
        inner_definition = definition_level
        if repetition in (_OPTIONAL, _REPEATED):
            inner_definition += 1
        inner_repetition = repetition_level
        if repetition == _REPEATED:
            inner_repetition += 1
        n_inner = element.get(_ELEMENT_N_CHILDREN)
        if n_inner:
            yield from _iterate_columns(
                remaining,
                n_inner,
                path=inner_path,
                definition_level=inner_definition,
                repetition_level=inner_repetition,
            )
        elif _ELEMENT_TYPE in element:  # An empty struct has neither children nor a type.
            yield _ParquetColumn(
                path=inner_path,
                type=element[_ELEMENT_TYPE],
                value_bytes=_value_bytes_of(element),
                definition_level=inner_definition,
                repetition_level=inner_repetition,
            )


def _value_bytes_of(element: Struct) -> int:
    """Return the bytes per value of a column; 0 where values differ in their size."""
    physical_type = element[_ELEMENT_TYPE]
    if physical_type == _FIXED_BYTES:
        value_bytes: int = element.get(_ELEMENT_LENGTH, 0)
        return value_bytes
    return _VALUE_BYTES[physical_type]


def _read_chunks(
    group: Struct, number: int, columns: Sequence[_ParquetColumn], file_bytes: int | None
) -> list[_Chunk]:
    """Read and check the column chunks of a row group.

    Args:
        group: the row group.
        number: its number in the file, for messages.
        columns: the columns of the file.
        file_bytes: size of the file in bytes; None for a footer that describes other files.

    Raises:
        ValueError: the footer is damaged, or the file is encrypted.
    """
    n_rows = group[_GROUP_N_ROWS]
    chunks: list[_Chunk] = []
    for column, stored in zip(columns, group[_GROUP_COLUMNS], strict=True):
        if any(field in stored for field in _CHUNK_ENCRYPTION):
            raise ValueError("it is encrypted; encrypted files are not supported")
        metadata = stored[_CHUNK_METADATA]
        chunk = _read_chunk(metadata)
        fault = _find_fault(column, metadata, chunk, n_rows, file_bytes)
        if fault is not None:
            path = ".".join(column.path)
            raise ValueError(
                f"its footer is damaged: column {path!r:.80} of row group {number} has {fault}"
            )
        chunks.append(chunk)
    return chunks


def _read_chunk(metadata: Struct) -> _Chunk:
    """Read the facts of a column chunk from its ``ColumnMetaData``."""
    n_values = metadata[_N_VALUES]
    n_nulls = metadata.get(_STATISTICS, {}).get(_N_NULLS, -1)
    if not 0 <= n_nulls <= n_values:
        n_nulls = -1  # Statistics are optional, so wrong ones count as missing.
    # If there is a dictionary, it is stored before the data.
    start = metadata[_START_OF_DATA]
    start_of_dictionary = metadata.get(_START_OF_DICTIONARY, 0)
    if 0 < start_of_dictionary < start:
        start = start_of_dictionary
    return _Chunk(
        n_values=n_values,
        n_nulls=n_nulls,
        n_bytes=metadata[_N_BYTES],
        start=start,
        n_raw_bytes=metadata[_N_RAW_BYTES],
    )


def _find_fault(
    column: _ParquetColumn,
    metadata: Struct,
    chunk: _Chunk,
    n_rows: int,
    file_bytes: int | None,
) -> str | None:
    """Say what is wrong with a column chunk; None if nothing is.

    Args:
        column: the column in the schema.
        metadata: the ``ColumnMetaData`` of the chunk.
        chunk: its facts.
        n_rows: number of rows of the row group.
        file_bytes: size of the file in bytes; None if the chunk is in another file.
    """
    if metadata[_TYPE] != column.type:
        return "another type than in the schema"
    if metadata[_COMPRESSION] not in _COMPRESSIONS:
        return f"the unknown compression {metadata[_COMPRESSION]}"

    smallest = min(n_rows, chunk.n_values, chunk.n_raw_bytes, chunk.n_bytes, chunk.start)
    is_list = column.repetition_level > 0
    has_other_number_of_values = not is_list and chunk.n_values != n_rows
    if smallest < 0 or has_other_number_of_values:
        return (
            f"{chunk.n_values} values in {n_rows} rows, in {chunk.n_bytes} bytes at {chunk.start}"
        )
    end = chunk.start + chunk.n_bytes
    if file_bytes is not None and end > file_bytes:
        return f"bytes {chunk.start} to {end}, but the file has {file_bytes}"

    # pyarrow reads a whole value from each bound that is not empty.
    statistics = metadata.get(_STATISTICS, {})
    for number in _BOUNDS:
        bound = statistics.get(number, b"")
        if 0 < len(bound) < column.value_bytes:
            return "a truncated minimum or maximum"
    return _find_fault_of_sizes(column, metadata.get(_SIZES, {}))


def _find_fault_of_sizes(column: _ParquetColumn, sizes: Struct) -> str | None:
    """Say what is wrong with the ``SizeStatistics`` of a column chunk; None if nothing is."""
    if _TEXT_BYTES in sizes and column.type != _BYTE_ARRAY:
        return "statistics of texts, but no texts"
    # A histogram counts the values of each level. It may be absent.
    repetitions = sizes.get(_REPETITION_HISTOGRAM, ())
    definitions = sizes.get(_DEFINITION_HISTOGRAM, ())
    has_right_repetitions = len(repetitions) in (0, column.repetition_level + 1)
    has_right_definitions = len(definitions) in (0, column.definition_level + 1)
    if not has_right_repetitions or not has_right_definitions:
        return "a histogram with the wrong number of levels"
    return None
