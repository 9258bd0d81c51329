"""Petastorm's selectors, which select whole row groups; predicates select rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from data_stack.exception import ConfigError
from data_stack_petastorm.etl.rowgroup_indexing import get_row_group_indexes

__all__ = [
    "IntersectIndexSelector",
    "RowGroupSelectorBase",
    "SingleIndexSelector",
    "UnionIndexSelector",
    "select_row_groups",
]


class RowGroupSelectorBase(ABC):
    """Base class of selectors; derive a selector of your own from it."""

    @abstractmethod
    def get_index_names(self) -> Iterable[str]:
        """Return the names of the required indexes."""

    @abstractmethod
    def select_row_groups(self, index_dict: Mapping[str, Any]) -> Iterable[int]:
        """Return the numbers of the row groups to read.

        Args:
            index_dict: the indexes of the dataset by name. An index has the attribute
                ``indexed_values`` and the method ``get_row_group_indexes(value)``.
        """


class SingleIndexSelector(RowGroupSelectorBase):
    """Selects the row groups that hold at least one of several values, by one index.

    Args:
        index_name: name of the index.
        values_list: the values; a single value is a list of one. A FieldNotNullIndexer needs none.

    Raises:
        ConfigError: the values are not a list.
    """

    _index_name: str
    _values: tuple[Any, ...]

    def __init__(self, index_name: str, values_list: Iterable[Any] = ()) -> None:
        if isinstance(values_list, (str, bytes)) or not isinstance(values_list, Iterable):
            raise ConfigError(
                f"SingleIndexSelector({index_name!r}, {values_list!r}): pass the values as a list"
            )
        self._index_name = index_name
        self._values = tuple(values_list)

    def get_index_names(self) -> list[str]:
        return [self._index_name]

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        index = index_dict[self._index_name]
        # A FieldNotNullIndexer ignores the value, but one call is needed. Other indexes do not hold
        # None, so no value selects no row group there.
        values = self._values or (None,)
        row_groups: set[int] = set()
        for value in values:
            row_groups |= set(index.get_row_group_indexes(value))
        return row_groups


class _CombinedSelector(RowGroupSelectorBase):
    """Combines the row groups of several selectors.

    Args:
        single_index_selectors: the selectors, at least one.

    Raises:
        ConfigError: there is no selector.
    """

    #: The method of sets that makes one set of those of all selectors.
    combine: Callable[..., set[int]]

    _selectors: tuple[RowGroupSelectorBase, ...]

    def __init__(self, single_index_selectors: Iterable[RowGroupSelectorBase]) -> None:
        self._selectors = tuple(single_index_selectors)
        if not self._selectors:
            raise ConfigError(f"{type(self).__name__} needs at least one selector")

    def get_index_names(self) -> list[str]:
        names: list[str] = []
        for selector in self._selectors:
            names.extend(selector.get_index_names())
        return names

    def select_row_groups(self, index_dict: Mapping[str, Any]) -> set[int]:
        sets = [set(selector.select_row_groups(index_dict)) for selector in self._selectors]
        return type(self).combine(*sets)


class IntersectIndexSelector(_CombinedSelector):
    """Selects the row groups that all of several selectors select."""

    combine = set.intersection


class UnionIndexSelector(_CombinedSelector):
    """Selects the row groups that at least one of several selectors selects."""

    combine = set.union


def select_row_groups(dataset: Any, selector: RowGroupSelectorBase) -> list[int]:
    """Return the numbers of the row groups that a selector selects.

    They are for ``ParquetDataset(…, row_groups=…)``.

    Args:
        dataset: URL or path of the dataset, or a ``ParquetDataset`` of pyarrow.
        selector: any selector.

    Raises:
        ConfigError: the dataset lacks a required index, or its row groups have changed since it was
            built.
        DatasetFileCorruptError: the indexes are damaged, or hostile.
    """
    indexes = get_row_group_indexes(dataset)
    missing_names = sorted(set(selector.get_index_names()) - set(indexes))
    if missing_names:
        raise ConfigError(
            f"Some of required indexes {missing_names} are not available in {sorted(indexes)}"
        )
    return sorted(selector.select_row_groups(indexes))
