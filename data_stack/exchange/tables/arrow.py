"""Tables of Arrow as samples, and samples as tables of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.exchange.tables.table import NamedColumns, cells_of
from data_stack.formats.arrow_tables import Origin, iterator_of_table
from data_stack.util.suggestions import did_you_mean


def from_arrow(table: Any, *, target: str | None = None) -> DatasetIteratorIF:
    """The rows of a table of Arrow as dict samples; values are made when they are read.

    Nothing is copied, except lists of fixed size within such lists if the table is a slice.

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
        raise ConfigError(
            f"from_arrow() expects an Arrow table, got {type(table).__name__}: {error!s:.200}"
        ) from error
    return iterator_of_table(read, "arrow", target)


def to_arrow(
    iterator: Any, *, lazy: bool = False, schema: pa.Schema | None = None
) -> pa.Table | pa.RecordBatchReader:
    """All samples as a ``pyarrow.Table``.

    Columns keep the types of their Arrow, Parquet, pandas or polars source if only rows and columns were selected since;
    otherwise types are inferred from the values. Arrays of numbers of one shape become (nested) lists of fixed size, arrays of
    different shapes, without elements or of text lists; complex numbers and matrices of times become bytes of ``.npy``. None and
    NaT become null, NaN stays.

    Args:
        iterator: any iterator; see :class:`~data_stack.exchange.tables.table.NamedColumns` for the names of its columns.
        lazy: return a ``pyarrow.RecordBatchReader`` that reads a few MiB at a time, for ``pyarrow.dataset.write_dataset``, DuckDB
            and others. Types are then inferred from the first few MiB.
        schema: a ``pyarrow.Schema`` with the types of columns, instead of inferred ones. No value changes: one that does not fit
            its type, such as 1.5 as int64, noon as date32 or text as bytes, is an error.

    Raises:
        ConfigError: a column holds values of several types, or of one that Arrow lacks, or a value does not fit its type; lazily,
            while the reader is read. Or ``schema`` has a column that the samples lack.
    """
    columns = NamedColumns(iterator)
    for field in schema or ():
        if field.name not in columns.names:
            raise ConfigError(
                f"schema= has the column {field.name!r:.80}, which the samples lack"
                f"{did_you_mean(field.name, columns.names)}; they have {', '.join(columns.names)!s:.1000}"
            )
    known = {**columns.origins, **{field.name: Origin(field) for field in schema or ()}}
    if not lazy:
        return _encode(columns.read(), known, 0)
    blocks = columns.blocks()
    first = _encode(next(blocks), known, 0)
    known = {field.name: known.get(field.name) or Origin(field) for field in first.schema}

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        n_rows = first.num_rows
        for block in blocks:
            table = _encode(block, known, n_rows)
            n_rows += table.num_rows
            yield from table.to_batches()

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _encode(columns: dict[str, Any], origins: dict[str, Origin | None], first_row: int) -> pa.Table:
    cells = {}
    fields = []
    for name, values in columns.items():
        origin = origins.get(name)
        cells[name] = cells_of(values, name, origin, first_row=first_row)
        known = None if origin is None else origin.field
        metadata = None if known is None else known.metadata
        fields.append(pa.field(name, cells[name].type, metadata=metadata))
    return pa.table(cells, pa.schema(fields))
