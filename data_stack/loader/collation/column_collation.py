"""What collations share that combine the arrays of each column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.loader.collation.collation import Collation
from data_stack.loader.collation.number_arrays import number_arrays
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacking import Batch, ColumnArray, list_columns


class ColumnCollation(Collation):
    """Combines the arrays of each column into one value."""

    #: The columns to combine; None for all that have arrays of numbers.
    _keys: Sequence[ColumnKey] | None

    def collate(self, batch: Batch) -> Any:
        """Combine a batch of columns of shape ``(n, ...)``."""
        columns = _columns_by_key(batch)
        self._check_keys(columns)

        # Combine the columns one by one.
        combined: dict[Any, Any] = dict(columns)
        lengths_by_key: dict[Any, npt.NDArray[np.int64]] = {}
        for key, column in columns.items():
            if self._keys is not None and key not in self._keys:
                continue
            name = "the column" if isinstance(batch, np.ndarray) else f"column {key!r}"
            arrays = self._arrays_of(column, name)
            if arrays is None:
                continue
            combined[key], lengths = self._combine(arrays, key, name)
            if lengths is not None:
                lengths_by_key[key] = lengths

        # Put the columns, and their lengths, where the samples had them.
        if isinstance(batch, dict):
            return _add_lengths(combined, lengths_by_key)
        if isinstance(batch, tuple) or lengths_by_key:
            return (*combined.values(), *lengths_by_key.values())
        return combined[0]

    @abstractmethod
    def _combine(
        self, arrays: list[ColumnArray], key: Any, name: str
    ) -> tuple[Any, npt.NDArray[np.int64] | None]:
        """Combine the arrays of a column, which have the same number of dimensions.

        Args:
            arrays: the array of each sample.
            key: the key of the column.
            name: the name of the column for messages.

        Returns:
            The combined value, and the lengths of the arrays if the batch gets them.
        """

    def _check_keys(self, columns: Mapping[Any, ColumnArray]) -> None:
        """Check that a batch has the named columns.

        Raises:
            ConfigError: it lacks one.
        """
        for key in self._keys or ():
            if key not in columns:
                raise ConfigError(
                    f"the batch has no column {key!r}{did_you_mean(key, columns)}, "
                    f"only {list(columns)}"
                )

    def _arrays_of(self, column: ColumnArray, name: str) -> list[ColumnArray] | None:
        """Return the arrays of a column; None if it has none and was not named.

        Raises:
            ConfigError: it has none, but was named; or only some of its values are arrays.
        """
        arrays = number_arrays(column, name)
        if arrays is None and self._keys is not None:
            raise ConfigError(
                f"{name} has no arrays or lists of numbers, but {column.dtype} of shape "
                f"{column.shape}; name another column"
            )
        return arrays


def _columns_by_key(batch: Batch) -> dict[Any, ColumnArray]:
    """Return the columns of a batch by their keys, or by their positions."""
    if isinstance(batch, dict):
        return batch
    return dict(enumerate(list_columns(batch)))


def _add_lengths(
    columns: dict[Any, Any], lengths_by_key: Mapping[Any, npt.NDArray[np.int64]]
) -> dict[Any, Any]:
    """Return columns, each followed by its lengths at the end of the batch.

    Raises:
        ConfigError: a column has the key of lengths.
    """
    batch = dict(columns)
    for key, lengths in lengths_by_key.items():
        lengths_key = f"{key}_lengths"
        if lengths_key in columns:
            raise ConfigError(
                f"the batch already has a column {lengths_key!r}; rename it, or pass lengths=False"
            )
        batch[lengths_key] = lengths
    return batch
