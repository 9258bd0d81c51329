"""One record set of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from data_stack.formats.parquet import Schema
from data_stack_croissant.record_column import RecordColumn

#: The name of the only split of a record set without splits.
EVERYTHING: Final = "all"


@dataclass(frozen=True)
class Join:
    """A left join of rows with the rows of another table that have an equal value.

    Attributes:
        left: the column with the value in the rows.
        right: the column with the value in the other table.
    """

    left: RecordColumn
    right: RecordColumn


@dataclass(frozen=True)
class RecordSet:
    """A record set, and how its rows become samples.

    Attributes:
        identifier: the identifier of the record set.
        table: the identifier of the file or record set whose rows become the rows, see
            :class:`~data_stack_croissant.record_column.ValueSource`; None without rows.
        joins: the joins with other tables, in their order.
        columns: all columns, including that of the split.
        split: the column with the split of each row; None without splits.
        splits: the names of the splits.
        rows: the rows that the document itself has: values by the identifiers of the fields.
    """

    identifier: str
    table: str | None
    joins: tuple[Join, ...]
    columns: tuple[RecordColumn, ...]
    split: RecordColumn | None
    splits: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    @property
    def schema(self) -> Schema:
        """The schema of the Parquet files in which the rows are stored."""
        fields = [column.field for column in self.columns if column is not self.split]
        return Schema("croissant", fields)

    def columns_of(self, table: str) -> list[RecordColumn]:
        """Return the columns that are read of a table, including those of joins."""
        columns = list(self.columns)
        for join in self.joins:
            columns += [join.left, join.right]
        return [column for column in columns if column.table == table]
