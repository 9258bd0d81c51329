"""Row-group indexes in Petastorm's spelling."""

from __future__ import annotations

from typing import Any

from data_stack.formats.parquet import NotNullIndex, SingleFieldIndex
from data_stack.formats.parquet.indexes import RowGroupIndex
from data_stack_petastorm.etl import RowGroupIndexerBase


class _Indexer(RowGroupIndexerBase):
    """An index of data_stack; ``index`` is that."""

    kind_of_index: type[RowGroupIndex]

    def __init__(self, index_name: str, index_field: str) -> None:
        self.index = self.kind_of_index(index_name, index_field)

    @property
    def index_name(self) -> str:
        """Of the index."""
        return self.index.name

    @property
    def column_names(self) -> list[str]:
        """The field, in a list."""
        return [self.index.field]

    @property
    def indexed_values(self) -> list[Any]:
        """The values, as Python's own; one text of an index of what is not null."""
        return ["Field is Not Null"] if isinstance(self.index, NotNullIndex) else list(self.index.row_groups)

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """The numbers of the row groups with a value, which may be one of numpy, or with any."""
        return set(self.index.row_groups_with(value_key))


class SingleFieldIndexer(_Indexer):
    """Value of a field → the row groups that hold it; of an array each element is a value.

    Args:
        index_name: for selectors.
        index_field: name of the field.
    """

    kind_of_index = SingleFieldIndex


class FieldNotNullIndexer(_Indexer):
    """The row groups in which a field is not null everywhere.

    Args:
        index_name: for selectors.
        index_field: name of the field.
    """

    kind_of_index = NotNullIndex


def as_indexer(index: RowGroupIndex) -> _Indexer:
    """An index of data_stack in Petastorm's spelling."""
    kind = FieldNotNullIndexer if isinstance(index, NotNullIndex) else SingleFieldIndexer
    indexer: _Indexer = kind(index.name, index.field)
    indexer.index = index
    return indexer
