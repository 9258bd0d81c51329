"""One record set of a document: its columns, where their values are, and its splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from data_stack.formats.parquet import Schema
from data_stack_croissant.record_column import RecordColumn

#: The split of a record set without splits.
EVERYTHING: Final = "all"


@dataclass(frozen=True)
class Join:
    """A left join with the rows of another table by equal values.

    Attributes:
        left: the key in the rows so far.
        right: the key in the rows of its table.
    """

    left: RecordColumn
    right: RecordColumn


@dataclass(frozen=True)
class RecordSet:
    """A record set, and how its rows become samples.

    Attributes:
        identifier: of the record set.
        table: the identifier of the file or record set with the rows, see :class:`RecordColumn`;
            None without rows.
        joins: of other tables, in their order.
        columns: all of them, including the split.
        split: the column with the split of each row; None without splits.
        splits: their names.
        rows: in the document, by the identifiers of the fields.
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
        """The schema of the Parquet files that the rows become."""
        fields = [column.field for column in self.columns if column is not self.split]
        return Schema("croissant", fields)

    def columns_of(self, table: str) -> list[RecordColumn]:
        """Return the columns of a table that the record set reads, and its join keys."""
        columns = list(self.columns)
        for join in self.joins:
            columns += [join.left, join.right]
        return [column for column in columns if column.table == table]
