"""What is made beside the files of a dataset: metadata and row-group indexes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["RowGroupIndexerBase"]


class RowGroupIndexerBase(ABC):
    """Which row groups hold what. There are two: see :mod:`data_stack_petastorm.etl.rowgroup_indexers`."""

    @abstractmethod
    def __add__(self, other: Any) -> Any:
        """This indexer, with what another one of the same field found in other row groups."""

    @property
    @abstractmethod
    def index_name(self) -> str:
        """Of the index."""

    @property
    @abstractmethod
    def column_names(self) -> list[str]:
        """The fields that are indexed."""

    @property
    @abstractmethod
    def indexed_values(self) -> list[Any]:
        """The values that can be asked for."""

    @abstractmethod
    def get_row_group_indexes(self, value_key: Any) -> set[int]:
        """The numbers of the row groups that hold a value."""

    @abstractmethod
    def build_index(self, decoded_rows: Sequence[Mapping[str, Any]], piece_index: int) -> Any:
        """Index the rows of a row group."""
