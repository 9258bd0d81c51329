"""Converts between Arrow tables and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.exchange.arrays import with_target
from data_stack.exchange.tables.cells import Origin, cells_of
from data_stack.exchange.tables.table import ArrowColumn, NamedColumns, TableIterator, check_names


def from_arrow(table: Any, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a table of Arrow as dict samples; nothing is copied, and values are made when they are read.

    Numbers, bools, dates and times keep their dtype; a time with a zone is the instant in UTC. Text, bytes, decimals, structs
    (dicts) and lists of lists become Python objects. A list of numbers is an array; a tensor or list of fixed size is an array of
    that shape. A null is None, and its column an array of objects. Dictionary columns return their values; as the target, they
    return the indices, and the values are the meta's ``class_names``.

    Args:
        table: a ``pyarrow.Table`` or ``RecordBatch``; or an object with ``__arrow_c_stream__``, such as a ``RecordBatchReader``
            or a relation of DuckDB, which is read to its end.
        target: the column of the target.

    Raises:
        ConfigError: ``table`` is not a table, a column does not exist or has an unsupported type, or two have the same name.
    """
    try:
        read = table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"from_arrow() expects an Arrow table, got {type(table).__name__}: {error!s:.200}") from error
    return iterator_of_table(read, "arrow", target)


def iterator_of_table(
    table: pa.Table, source: str, target: str | None, read_from: Mapping[str, Any] | None = None
) -> DatasetIteratorIF:
    """The rows of a table as dict samples, with a meta if there is a target; ``read_from`` as for TableIterator."""
    check_names(table.column_names)
    columns = {each.name: ArrowColumn(table.column(each.name), each, as_codes=each.name == target) for each in table.schema}
    class_names = columns[target].class_names if target in columns else None
    return with_target(TableIterator(columns, read_from), source, list(columns), target, class_names)


def to_arrow(iterator: Any, *, lazy: bool = False, schema: pa.Schema | None = None) -> pa.Table | pa.RecordBatchReader:
    """All samples as a ``pyarrow.Table``.

    Columns keep the types of their Arrow, Parquet, pandas or polars source if only rows and columns were selected since;
    otherwise types are inferred from the values. Arrays of one shape become (nested) lists of fixed size, arrays of different
    shapes lists. None and NaT become null, NaN stays.

    Args:
        iterator: any iterator; see :class:`~data_stack.exchange.tables.table.NamedColumns` for the names of its columns.
        lazy: return a ``pyarrow.RecordBatchReader`` that reads a few MiB at a time, for ``pyarrow.dataset.write_dataset``, DuckDB
            and others. Types are then inferred from the first few MiB.
        schema: a ``pyarrow.Schema`` with the types of columns, instead of inferred ones.

    Raises:
        ConfigError: a column holds values of several types, or of one that Arrow lacks; lazily, while the reader is read.
    """
    columns = NamedColumns(iterator)
    known = {**columns.origins, **{field.name: Origin(field) for field in schema or ()}}
    if not lazy:
        return _encode(columns.read(), known)
    blocks = columns.blocks()
    first = _encode(next(blocks), known)
    known = {field.name: known.get(field.name) or Origin(field) for field in first.schema}

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        for block in blocks:
            yield from _encode(block, known).to_batches()

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _encode(columns: dict[str, Any], origins: dict[str, Origin | None]) -> pa.Table:
    cells = {name: cells_of(values, name, origins.get(name)) for name, values in columns.items()}
    fields = {name: origin.field for name, origin in origins.items() if origin is not None}
    metadata = {name: getattr(fields.get(name), "metadata", None) for name in cells}
    return pa.table(cells, pa.schema([pa.field(name, each.type, metadata=metadata[name]) for name, each in cells.items()]))
