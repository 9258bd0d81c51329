"""Rows of mixed features, in whatever form, as one column for each feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from data_stack.dataset.encoders.columns import Column, as_column
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.util.stacked_values import stack_values

__all__ = ["Feature", "FeatureRows"]

Feature = Union[int, str]
"""Names a feature: a position in rows that are arrays or lists, a key in rows that are dicts."""


class FeatureRows:
    """Rows by their features: an array of two or more dimensions or of records, lists or dicts.

    Args:
        rows: the rows.
        names: positions of features by name, for rows that are arrays or lists.

    Attributes:
        n_rows: how many.
        array: shape ``(n_rows, n_features)``, where that is what they are.

    Raises:
        ConfigError: they are no rows.
    """

    def __init__(self, rows: Any, names: Mapping[str, int]) -> None:
        self._names, self.array = names, None
        self._features: Sequence[Feature] = ()
        self._column: Callable[[Any], Column]
        column = as_column(rows)
        self.n_rows = len(column)
        if column.dtype.names is not None and column.ndim == 1:
            self._features, self._column = column.dtype.names, column.__getitem__
        elif column.ndim >= 2:
            self.array = column if column.ndim == 2 else None
            self._features, self._column = range(column.shape[1]), lambda position: column[:, position]
        elif column.dtype == object and len(column):
            self._set_listed(column.tolist())
        elif len(column):
            raise ConfigError(f"rows of features are arrays, lists or dicts; these are single values of dtype {column.dtype}")

    def _set_listed(self, rows: list[Any]) -> None:
        if isinstance(rows[0], Mapping):
            self._features, self._column = list(rows[0]), lambda name: _values_of(rows, name)
            return
        n_features = len(rows[0]) if hasattr(rows[0], "__len__") else None
        for position, row in enumerate(rows):
            if n_features is None or isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != n_features:
                raise EncodingError(f"{row!r:.80} is no row of as many features as the one before it", position)
        columns = list(zip(*rows, strict=True))
        self._features, self._column = range(len(columns)), lambda position: stack_values(list(columns[position]))

    def column(self, feature: Feature) -> Column:
        """The values of one feature, shape ``(n_rows, ...)``.

        Raises:
            ConfigError: the rows have no such feature.
        """
        return self._column(self.key(feature))

    def block(self, features: Sequence[Feature]) -> Column:
        """Several features side by side, shape ``(n_rows, n_features)``."""
        if self.array is not None:
            return self.array[:, [self.key(feature) for feature in features]]
        columns = [self.column(feature) for feature in features]
        if any(column.ndim != 1 for column in columns):
            raise ConfigError(f"the features {list(features)!r:.120} are not single values, so they make no table")
        return np.stack(columns, axis=1)

    def key(self, feature: Feature) -> Any:
        """Where a feature stands in these rows: a position from 0 on, or a key."""
        if not isinstance(self._features, range):
            if feature not in self._features and self.n_rows:
                known = ", ".join(map(repr, self._features[:20]))
                raise ConfigError(f"rows have no feature {feature!r}: they have {known}")
            return feature
        n_features = len(self._features)
        position = self._names.get(feature, feature) if isinstance(feature, str) else feature
        if isinstance(position, str) or not -n_features <= position < n_features:
            known = f"features are called {', '.join(self._names)}" if self._names else "give feature_names to call them by name"
            raise ConfigError(f"rows have no feature {feature!r}: they have the positions 0 to {n_features - 1}; {known:.200}")
        return position % n_features


def _values_of(rows: list[Any], name: str) -> Column:
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping) or name not in row:
            known = f"its features are {', '.join(map(repr, row))}" if isinstance(row, Mapping) else "it is no dict"
            raise EncodingError(f"a row has no feature {name!r}: {known:.200}", position)
    return stack_values([row[name] for row in rows])
