"""Petastorm's row-group indexes."""

from __future__ import annotations

from typing import Any

from data_stack.formats.parquet import NotNullIndex, SingleFieldIndex
from data_stack.formats.parquet.indexes import RowGroupIndex
from data_stack_petastorm.etl import RowGroupIndexerBase


class _Indexer(RowGroupIndexerBase):
    """Wraps an index of data_stack, the attribute ``index``."""

    kind_of_index: type[RowGroupIndex]

    def __init__(self, index_name: str, index_field: str) -> None:
        self.index = self.kind_of_index(index_name, index_field)

    @property
    def index_name(self) -> str:
        """Name of the index."""
        return self.index.name

    @property
    def column_names(self) -> list[str]:
        """The field, in a list."""
        return [self.index.field]

    @property
    def indexed_values(self) -> list[Any]:
        """The values, of Python's types; a constant text for an index of rows that are not null."""
        return ["Field is Not Null"] if isinstance(self.index, NotNullIndex) else list(self.index.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """Return the numbers of the row groups with a value, or with any value."""
        return set(self.index.row_groups_with(value_key))


class SingleFieldIndexer(_Indexer):
    """Maps each value of a field to the row groups that hold it; each element of an array is a value.

    Args:
        index_name: name for selectors.
        index_field: name of the field.
    """

    kind_of_index = SingleFieldIndex


class FieldNotNullIndexer(_Indexer):
    """Lists the row groups in which a field has a value that is not null.

    Args:
        index_name: name for selectors.
        index_field: name of the field.
    """

    kind_of_index = NotNullIndex


def as_indexer(index: RowGroupIndex) -> _Indexer:
    """Wrap an index of data_stack."""
    kind = FieldNotNullIndexer if isinstance(index, NotNullIndex) else SingleFieldIndexer
    indexer: _Indexer = kind(index.name, index.field)
    indexer.index = index
    return indexer
