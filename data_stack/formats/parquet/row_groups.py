"""Opens the row groups of a dataset for reading."""

from __future__ import annotations

from collections.abc import Sequence

from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.row_group_layout import RowGroupLayout, Rows
from data_stack.formats.parquet.row_group_reader import RowGroupReader


class RowGroups(RowGroupLayout):
    """The row groups of a dataset, for reading. Threads may share it.

    It adds reading to :class:`RowGroupLayout`, which documents arguments and attributes. A
    :class:`RowGroupReader` uses the layout, so the layout cannot import the reader.
    """

    def open(self, group: int, names: Sequence[str], rows: Rows | None = None) -> RowGroupReader:
        """Return a reader of columns of a row group; nothing is read yet.

        Args:
            group: number of the row group.
            names: the names of the columns.
            rows: the rows to keep, ascending, at least one; None for all.
        """
        return RowGroupReader(self, group, names, rows)

    def read(self, group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        """Read columns of a row group, all rows of them.

        Args:
            group: number of the row group.
            names: the names of the columns.

        Returns:
            The columns by name.

        Raises:
            DatasetFileCorruptError: the file is damaged; the message names file, row group, row
                and field.
            StorageError: the file cannot be read.
        """
        return self.open(group, names).columns()
