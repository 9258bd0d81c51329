"""Row-group indexes in Petastorm's spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet import NotNullIndex, SingleFieldIndex
from data_stack.formats.parquet.indexes import RowGroupIndex
from data_stack_petastorm.etl import RowGroupIndexerBase

__all__ = ["FieldNotNullIndexer", "SingleFieldIndexer", "as_indexer"]


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
        """The values, as Python's own."""
        return list(self.index.row_groups)

    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """The numbers of the row groups with a value, which may be one of numpy."""
        return set(self.index.row_groups_with(value_key))

    def build_index(self, decoded_rows: Sequence[Mapping[str, Any]], piece_index: int) -> Any:
        """Add the rows of a row group.

        Raises:
            ConfigError: there are none, or their values cannot be looked up.
        """
        if not decoded_rows:
            raise ConfigError(f"Cannot build index for empty rows, column {self.index.field!r}")
        column = np.empty(len(decoded_rows), object)
        for place, row in enumerate(decoded_rows):
            column[place] = row[self.index.field]
        self._add(self.kind_of_index(self.index.name, self.index.field).build([(piece_index, column)]))
        return self.index.row_groups

    def __add__(self, other: Any) -> _Indexer:
        """This indexer, with the row groups of another one, too.

        Raises:
            TypeError, ConfigError: it is of another kind, or of another field.
        """
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} and {type(other).__name__} cannot be added")
        if other.column_names != self.column_names:
            raise ConfigError(f"indexers of different fields cannot be added: {self.column_names}, {other.column_names}")
        self._add(other.index)
        return self

    def _add(self, found: RowGroupIndex) -> None:
        groups = dict(self.index.row_groups)
        for value, numbers in found.row_groups.items():
            groups[value] = groups.get(value, frozenset()) | numbers
        self.index = replace(self.index, row_groups=groups)


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

    @property
    def indexed_values(self) -> list[Any]:
        """One text."""
        return ["Field is Not Null"]

    def get_row_group_indexes(self, value_key: Any = None) -> set[int]:
        """The numbers of these row groups."""
        return super().get_row_group_indexes(value_key)


def as_indexer(index: RowGroupIndex) -> _Indexer:
    """An index of data_stack in Petastorm's spelling."""
    kind = FieldNotNullIndexer if isinstance(index, NotNullIndex) else SingleFieldIndexer
    indexer: _Indexer = kind(index.name, index.field)
    indexer.index = index
    return indexer
