"""Reads samples of any kind as named columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator import DatasetIteratorIF, column_names
from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.formats.arrow_tables import Origin
from data_stack.formats.arrow_tables import check_names as check_names  # Programs import it here.
from data_stack.formats.column_source import name_of_position
from data_stack.formats.sample_columns import by_name, samples_at_once
from data_stack.values.stacking import join_columns

_Array = npt.NDArray[Any]


class NamedColumns:
    """The columns of an iterator, read in blocks of a few MiB.

    The columns of tuples have the names that the dataset declares; otherwise ``sample``, ``target``
    and ``tag`` as in its meta; otherwise ``column_0``, ``column_1`` …. A bare value is the column
    ``value``.

    Args:
        samples: an iterator, or an object with ``len`` and ``[i]``.

    Raises:
        ConfigError: ``samples`` is not an iterator.
    """

    #: The samples.
    iterator: DatasetIteratorIF

    #: The columns in their source library, by name; a column may be absent or None.
    origins: dict[Any, Origin | None]

    #: The names of the columns in order; without samples, those of the schema or meta.
    names: list[str]

    _access: SampleAccess

    #: The number of samples of a block.
    _n_at_once: int

    def __init__(self, samples: Any) -> None:
        self.iterator = as_iterator(samples)
        self._access = access_to(self.iterator)
        self.origins = _find_origins(self._access)
        if len(self.iterator):
            first_sample = self._access.sample(0)
            self.names = _find_names(self.iterator, first_sample)
            self._n_at_once = samples_at_once(self._name_columns(first_sample))
        else:
            no_samples = self._access.batch(np.empty(0, np.intp))
            self.names = _find_names(self.iterator, no_samples)
            self._n_at_once = 1

    def blocks(self) -> Iterator[dict[str, _Array]]:
        """Yield the columns block by block; one empty block without samples."""
        n_samples = len(self.iterator)
        for start in range(0, max(n_samples, 1), self._n_at_once):
            stop = min(start + self._n_at_once, n_samples)
            batch = self._access.batch(np.arange(start, stop))
            has_unknown_columns = isinstance(batch, tuple) and not batch
            if has_unknown_columns:
                yield {name: np.empty(0, object) for name in self.names}
            else:
                yield self._name_columns(batch)

    def read(self) -> dict[str, _Array]:
        """Return all columns, shape ``(n_samples, ...)`` each."""
        blocks = list(self.blocks())
        columns: dict[str, _Array] = {}
        for name in self.names:
            # The blocks of a column are removed, so that memory never holds all samples twice.
            column_blocks = [block.pop(name) for block in blocks]
            columns[name] = join_columns(column_blocks)
        return columns

    def _name_columns(self, sample: Any) -> dict[str, Any]:
        """Return the values of a sample, or the columns of a batch, by name."""
        return {str(name): value for name, value in by_name(sample, self.names).items()}


def _find_origins(access: SampleAccess) -> dict[Any, Origin | None]:
    """Return what the schema says of the columns in their source library."""
    origins: dict[Any, Origin | None] = {}
    for name, column in (access.declare_columns() or {}).items():
        origins[name] = None
        if isinstance(column.origin, Origin):
            origins[name] = column.origin
        elif isinstance(column.origin, pa.DataType):  # a column of a Parquet file
            origins[name] = Origin(pa.field(name, column.origin))
    return origins


def _find_names(iterator: DatasetIteratorIF, sample: Any) -> list[str]:
    """Return a name for each value of a sample, or for each column of a batch."""
    if isinstance(sample, Mapping):
        return [str(name) for name in sample]
    if not isinstance(sample, (tuple, list)):
        return ["value"]
    declared_names = list(column_names(iterator))
    if declared_names:
        return declared_names
    return [name_of_position(iterator, position) for position in range(len(sample))]
