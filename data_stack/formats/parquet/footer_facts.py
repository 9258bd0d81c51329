"""Checks that a footer agrees with itself and its file, before pyarrow reads what it describes.

pyarrow's C++ code ends the process for some crafted footers.
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

#: What is known of each column chunk.
_CHUNK_DTYPE: Final = np.dtype(
    [
        ("n_values", np.int64),
        ("n_nulls", np.int64),
        ("n_bytes", np.int64),
        ("start", np.int64),
        ("n_raw_bytes", np.int64),
    ]
)
#: Levels of a nested schema; the deepest that pyarrow reads have fewer.
_MAX_SCHEMA_DEPTH: Final = 100

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
_INT96: Final = 3
_BYTE_ARRAY: Final = 6
_FIXED_BYTES: Final = 7
#: Bytes per value by physical type; the schema states those of ``_FIXED_BYTES``.
_VALUE_BYTES: Final = {0: 1, 1: 4, 2: 8, _INT96: 12, 4: 4, 5: 8, _BYTE_ARRAY: 0}
#: Compressions, from UNCOMPRESSED to LZ4_RAW.
_COMPRESSIONS: Final = range(8)


@dataclass(frozen=True)
class FooterFacts:
    """Row groups and columns according to a footer.

    Attributes:
        columns: for each field the numbers of its Parquet columns: a struct has several.
        is_required: whether a column has a value in every row, shape ``(n_columns,)``.
        value_bytes: bytes per value; 0 where values differ in their size, shape ``(n_columns,)``.
        is_int96: whether a column has times of INT96, shape ``(n_columns,)``.
        n_rows: rows of each row group, shape ``(n_row_groups,)``.
        chunks: facts of the columns of each row group, shape ``(n_row_groups, n_columns)``:
            ``n_values`` including nulls, or elements of lists; ``n_nulls``, -1 where unknown;
            ``n_bytes`` stored; ``start``, the offset in the file; and ``n_raw_bytes``, the bytes
            before compression.
    """

    columns: dict[str, list[int]]
    is_required: npt.NDArray[np.bool_]
    value_bytes: _Integers
    is_int96: npt.NDArray[np.bool_]
    n_rows: _Integers
    chunks: npt.NDArray[np.void]

    def values_per_row(self) -> dict[str, int | None]:
        """Return the values per row of each field.

        -1 if rows differ or do not exist, None if a value may be null.
        """
        groups = np.flatnonzero(self.n_rows)
        if not len(groups):
            return dict.fromkeys(self.columns, -1)
        chunks = self.chunks[groups]
        may_be_null = (chunks["n_nulls"] != 0).any(axis=0) & ~self.is_required  # -1: unknown
        counts: dict[str, int | None] = {}
        for name, numbers in self.columns.items():
            if may_be_null[numbers].any():
                counts[name] = None
            else:
                counts[name] = _common_ratio(chunks["n_values"][:, numbers[0]], self.n_rows[groups])
        return counts


def _common_ratio(n_values: _Integers, n_rows: _Integers) -> int:
    """Return the values per row, if all row groups have equally many; else -1."""
    per_row = int(n_values[0] // n_rows[0])
    if (n_values == per_row * n_rows).all():
        return per_row
    return -1


class _ParquetColumn(NamedTuple):
    """A column of the schema.

    Attributes:
        path: names of the fields that lead to it.
        type: its physical type.
        value_bytes: bytes per value; 0 where values differ in their size.
        definition_level: how many fields on its path may be missing.
        repetition_level: how many fields on its path are repeated.
    """

    path: tuple[str, ...]
    type: int
    value_bytes: int
    definition_level: int
    repetition_level: int


class _Chunk(NamedTuple):
    """A column chunk; the fields are those of ``_CHUNK_DTYPE``."""

    n_values: int
    n_nulls: int
    n_bytes: int
    start: int
    n_raw_bytes: int


def footer_facts(footer: bytes, file_bytes: int | None) -> FooterFacts:
    """Parse a footer, and check that it agrees with itself and its file.

    Args:
        footer: the serialized ``FileMetaData``, without length and magic.
        file_bytes: size of the file; None for a footer that describes other files.

    Raises:
        ValueError: the footer is damaged; the message says how.
    """
    try:
        metadata, _ = read_struct(footer)
        columns = _list_columns(metadata[_SCHEMA])
        groups = metadata.get(_ROW_GROUPS, [])
        n_rows = np.array([group[_GROUP_N_ROWS] for group in groups], np.int64)
        chunks: list[list[_Chunk]] = []
        for number, group in enumerate(groups):
            chunks.append(_read_chunks(group, number, columns, file_bytes))
        if n_rows.sum() != metadata[_N_ROWS]:
            raise ValueError(
                f"it states {metadata[_N_ROWS]} rows, its row groups have {n_rows.sum()}"
            )
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its footer lacks a required field ({error!s:.60})") from error

    columns_of_fields: dict[str, list[int]] = {}
    for number, column in enumerate(columns):
        columns_of_fields.setdefault(column.path[0], []).append(number)
    return FooterFacts(
        columns=columns_of_fields,
        is_required=np.array([column.definition_level == 0 for column in columns], np.bool_),
        value_bytes=np.array([column.value_bytes for column in columns], np.int64),
        is_int96=np.array([column.type == _INT96 for column in columns], np.bool_),
        n_rows=n_rows,
        chunks=np.array(chunks, _CHUNK_DTYPE).reshape(len(groups), len(columns)),
    )


def _list_columns(elements: Sequence[Struct]) -> list[_ParquetColumn]:
    """List the columns of a schema, which is a tree of elements in depth-first order."""
    root = elements[0]
    remaining = iter(elements[1:])
    columns = list(_walk(remaining, root.get(_ELEMENT_N_CHILDREN, 0), (), 0, 0))
    if next(remaining, None) is not None:
        raise ValueError("its schema is not a tree of columns")
    return columns


def _walk(
    remaining: Iterator[Struct],
    n_children: int,
    path: tuple[str, ...],
    definition_level: int,
    repetition_level: int,
) -> Iterator[_ParquetColumn]:
    """Take the children of an element, and their children, and yield those that are columns."""
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
            yield from _walk(remaining, n_inner, inner_path, inner_definition, inner_repetition)
        elif _ELEMENT_TYPE in element:
            physical_type = element[_ELEMENT_TYPE]
            if physical_type == _FIXED_BYTES:
                value_bytes = element.get(_ELEMENT_LENGTH, 0)
            else:
                value_bytes = _VALUE_BYTES[physical_type]
            yield _ParquetColumn(
                inner_path, physical_type, value_bytes, inner_definition, inner_repetition
            )


def _read_chunks(
    group: Struct, number: int, columns: Sequence[_ParquetColumn], file_bytes: int | None
) -> list[_Chunk]:
    """Read and check the column chunks of a row group.

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
    n_values = metadata[_N_VALUES]
    n_nulls = metadata.get(_STATISTICS, {}).get(_N_NULLS, -1)
    if not 0 <= n_nulls <= n_values:
        n_nulls = -1
    # a dictionary stands before the data
    start = metadata[_START_OF_DATA]
    start_of_dictionary = metadata.get(_START_OF_DICTIONARY, 0)
    if 0 < start_of_dictionary < start:
        start = start_of_dictionary
    return _Chunk(n_values, n_nulls, metadata[_N_BYTES], start, metadata[_N_RAW_BYTES])


def _find_fault(
    column: _ParquetColumn,
    metadata: Struct,
    chunk: _Chunk,
    n_rows: int,
    file_bytes: int | None,
) -> str | None:
    """Say what is wrong with a column chunk; None if nothing is."""
    if metadata[_TYPE] != column.type:
        return "another type than in the schema"
    if metadata[_COMPRESSION] not in _COMPRESSIONS:
        return f"the unknown compression {metadata[_COMPRESSION]}"

    end = chunk.start + chunk.n_bytes
    has_negative_number = (
        min(n_rows, chunk.n_values, chunk.n_raw_bytes, chunk.n_bytes, chunk.start) < 0
    )
    has_wrong_number = column.repetition_level == 0 and chunk.n_values != n_rows
    if has_negative_number or has_wrong_number:
        return (
            f"{chunk.n_values} values in {n_rows} rows, in {chunk.n_bytes} bytes at {chunk.start}"
        )
    if file_bytes is not None and end > file_bytes:
        return f"bytes {chunk.start} to {end}, but the file has {file_bytes}"

    statistics = metadata.get(_STATISTICS, {})
    for number in _BOUNDS:
        bound = statistics.get(number, b"")
        if 0 < len(bound) < column.value_bytes:
            return "a truncated minimum or maximum"
    return _find_fault_of_sizes(column, metadata.get(_SIZES, {}))


def _find_fault_of_sizes(column: _ParquetColumn, sizes: Struct) -> str | None:
    """Say what is wrong with the statistics of sizes; None if nothing is."""
    if _TEXT_BYTES in sizes and column.type != _BYTE_ARRAY:
        return "statistics of texts, but no texts"
    for number, level in (
        (_REPETITION_HISTOGRAM, column.repetition_level),
        (_DEFINITION_HISTOGRAM, column.definition_level),
    ):
        histogram = sizes.get(number, ())
        if len(histogram) not in (0, level + 1):
            return "a histogram with the wrong number of levels"
    return None
