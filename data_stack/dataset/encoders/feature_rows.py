"""Rows of mixed features, in whatever form, as one column for each feature."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from data_stack.dataset.encoders.columns import Column, as_column, stacked
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError

__all__ = ["ArrayRows", "Feature", "FeatureRows", "feature_rows", "position_of"]

Feature = Union[int, str]
"""Names a feature: a position in rows that are arrays or lists, a key in rows that are dicts."""


class FeatureRows(ABC):
    """Rows by their features."""

    n_rows: int

    @property
    @abstractmethod
    def features(self) -> list[Feature]:
        """All features of these rows, in their order."""

    @abstractmethod
    def column(self, feature: Feature) -> Column:
        """The values of one feature, shape ``(n_rows, ...)``.

        Raises:
            ConfigError: the rows have no such feature.
        """

    def block(self, features: Sequence[Feature]) -> Column:
        """Several features side by side, shape ``(n_rows, n_features)``."""
        columns = [self.column(feature) for feature in features]
        if any(column.ndim != 1 for column in columns):
            raise ConfigError(f"the features {list(features)!r:.120} are not single values, so they make no table")
        return np.stack(columns, axis=1)


class ArrayRows(FeatureRows):
    """Rows of an array of shape ``(n_rows, n_features, ...)``; columns are views of it."""

    def __init__(self, array: Column, names: Mapping[str, int]) -> None:
        self.array, self.n_rows = array, len(array)
        self.names = names

    @property
    def features(self) -> list[Feature]:
        """Their positions."""
        return list(range(self.array.shape[1]))

    def column(self, feature: Feature) -> Column:
        """A view."""
        return self.array[:, position_of(feature, self.array.shape[1], self.names)]

    def block(self, features: Sequence[Feature]) -> Column:
        """One request, where the features are single values."""
        if self.array.ndim != 2:
            return super().block(features)
        return self.array[:, [position_of(feature, self.array.shape[1], self.names) for feature in features]]


class _ListedRows(FeatureRows):
    def __init__(self, rows: list[Any], names: Mapping[str, int]) -> None:
        self.n_rows, self._names = len(rows), names
        try:
            self._columns = list(zip(*rows, strict=True))
        except (TypeError, ValueError):
            position, row = _odd_one(rows)
            raise EncodingError(f"{row!r:.80} is no row of as many features as the one before it", position) from None

    @property
    def features(self) -> list[Feature]:
        """Their positions."""
        return list(range(len(self._columns)))

    def column(self, feature: Feature) -> Column:
        return stacked(list(self._columns[position_of(feature, len(self._columns), self._names)]))


class _DictRows(FeatureRows):
    def __init__(self, rows: list[Any]) -> None:
        self._rows, self.n_rows = rows, len(rows)

    @property
    def features(self) -> list[Feature]:
        return list(self._rows[0])

    def column(self, feature: Feature) -> Column:
        try:
            return stacked(list(map(operator.itemgetter(feature), self._rows)))
        except (LookupError, TypeError):
            for position, row in enumerate(self._rows):
                if not isinstance(row, Mapping) or feature not in row:
                    known = f"its features are {', '.join(map(repr, row))}" if isinstance(row, Mapping) else "it is no dict"
                    raise EncodingError(f"a row has no feature {feature!r}: {known:.200}", position) from None
            raise


class _Table(FeatureRows):
    """Columns by their names: a structured array, a dict of columns, a data frame."""

    def __init__(self, table: Any, names: Sequence[Any], n_rows: int) -> None:
        self._table, self._table_names, self.n_rows = table, list(names), n_rows

    @property
    def features(self) -> list[Feature]:
        return list(self._table_names)

    def column(self, feature: Feature) -> Column:
        if feature not in self._table_names:
            known = ", ".join(map(repr, self._table_names[:20]))
            raise ConfigError(f"rows have no feature {feature!r}: they have {known}")
        return as_column(self._table[feature])


def feature_rows(rows: Any, names: Mapping[str, int]) -> FeatureRows:
    """The features of ``rows``: an array of two or more dimensions, a structured array, a column of lists or dicts, a table.

    Args:
        rows: the rows.
        names: positions of features by name, for rows that are arrays or lists.

    Raises:
        ConfigError: they are no rows.
    """
    if isinstance(rows, Mapping):
        columns = {name: as_column(column) for name, column in rows.items()}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise ConfigError(f"the columns of a table are equally long, these have the lengths {sorted(lengths)}")
        return _Table(columns, list(columns), lengths.pop())
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):  # a data frame
        return _Table(rows, list(rows.columns), len(rows))
    column = as_column(rows)
    if column.dtype.names is not None and column.ndim == 1:
        return _Table(column, column.dtype.names, len(column))
    if column.ndim >= 2:
        return ArrayRows(column, names)
    if column.dtype == object and len(column):
        listed = column.tolist()
        return _DictRows(listed) if isinstance(listed[0], Mapping) else _ListedRows(listed, names)
    if len(column) == 0:
        return _Table({}, (), 0)
    raise ConfigError(f"rows of features are arrays, lists or dicts; these are single values of dtype {column.dtype}")


def position_of(feature: Feature, n_features: int, names: Mapping[str, int]) -> int:
    """Where a feature stands in rows of so many.

    Raises:
        ConfigError: it does not.
    """
    position = names.get(feature, feature) if isinstance(feature, str) else feature
    if isinstance(position, str):
        known = f"features are called {', '.join(names)}" if names else "give feature_names to call them by name"
        raise ConfigError(f"rows have no feature {feature!r}: they have the positions 0 to {n_features - 1}; {known:.200}")
    if not -n_features <= position < n_features:
        raise ConfigError(f"rows have no feature {feature!r}: they have the positions 0 to {n_features - 1}")
    return position if position >= 0 else position + n_features


def _odd_one(rows: list[Any]) -> tuple[int, Any]:
    n_features = len(rows[0]) if hasattr(rows[0], "__len__") else None
    for position, row in enumerate(rows):
        if n_features is None or isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != n_features:
            return position, row
    return 0, rows[0]
