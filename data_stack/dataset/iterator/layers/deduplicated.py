"""The samples of an iterator without those that equal an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnArray, ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.splits.class_numbers import class_numbers
from data_stack.exception import ConfigError
from data_stack.values.digests import DIGEST_BYTES, row_digests
from data_stack.values.stacking import keys_of

_Columns = Union[ColumnKey, Sequence[ColumnKey], None]


@layer("deduplicated", columns=["by"])
class DeduplicatedDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator``, in order, without those that equal an earlier one.

    Samples of equal content are equal, see :func:`data_stack.values.digests.sample_digest`: numbers
    are compared by value, not by dtype, arrays by shape and values; NaN equals NaN. All columns, or
    the columns ``by``, are read once when this is made, in blocks of a few MiB. (A single column
    that begins with texts or whole numbers, and goes on with other values, is read twice.)

    While samples are compared, 32 bytes are held for each of them. Then 4 bytes are kept for each
    sample that stays. A pickle carries the positions, so another process does not read again.

    Args:
        dataset_iterator: the iterator looked through; it is not closed.
        by: the column to compare, or a list of columns; None for whole samples.

    Raises:
        ConfigError: a column does not exist, or a sample holds an object of unknown content.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, by: _Columns = None) -> None:
        first_positions = _find_first_of_atoms(dataset_iterator, by)
        if first_positions is None:
            digests = iterator_digests(dataset_iterator, by)
            first_positions, _ = equal_groups(digests)
        super().__init__(dataset_iterator, first_positions)
        # A copy: the caller may change a list of columns afterwards.
        self._made_with = {"by": copy(by)}


#: Types whose values are equal for Python exactly if their digests are equal. NaN, a float, equals
#: itself by its digest only.
_ATOMS: Final = frozenset((str, bytes, int, bool, type(None)))

#: Distinct values that are held to find equal ones; of more, digests take less memory.
_MAX_ATOMS: Final = 1 << 20


def _find_first_of_atoms(
    dataset_iterator: DatasetIteratorIF, columns: _Columns
) -> npt.NDArray[np.intp] | None:
    """Find where each distinct value of one column appears first, without digests.

    It takes a quarter of the time of digests (200,000 texts of 40 kinds).

    Returns:
        Positions, ascending, shape ``(n_distinct,)``. None for several columns, for other values
        than texts, bytes and whole numbers, and for more than :data:`_MAX_ATOMS` distinct values.
    """
    keys = [] if columns is None else keys_of(columns)
    if len(keys) != 1:
        return None
    source = access_to(as_iterator(dataset_iterator))
    distinct = source.distinct_values(keys[0])
    if distinct is not None:
        return distinct.first

    def read(positions: npt.NDArray[np.intp]) -> ColumnArray:
        [column] = source.columns(keys, positions)
        return column

    first_position_of: dict[Any, int] = {}
    for start, column in in_blocks(source.n_samples, read):
        if column.ndim != 1 or column.dtype.kind not in "biuUSO":
            return None
        values = column.tolist()
        if not _ATOMS.issuperset(map(type, values)):
            return None
        new_values = set(values).difference(first_position_of)
        if new_values:
            # From the end, so that of equal values the first position stays.
            positions = range(start + len(values) - 1, start - 1, -1)
            position_of = dict(zip(reversed(values), positions, strict=True))
            first_position_of.update({value: position_of[value] for value in new_values})
            if len(first_position_of) > _MAX_ATOMS:
                return None
    return np.array(sorted(first_position_of.values()), dtype=np.intp)


def unique(iterator: DatasetIteratorIF, column: ColumnKey | None = None) -> ColumnArray:
    """Return the distinct values of a column (None: the target), as ``iterator.unique`` does."""
    stacked = as_iterator(iterator)
    key = stacked._class_column(column)
    distinct = access_to(stacked).distinct_values(key)
    if distinct is not None:
        return distinct.values
    return stacked._stack_layer(DeduplicatedDatasetIterator, by=key).read_column(key)


def iterator_digests(
    dataset_iterator: DatasetIteratorIF, columns: _Columns = None
) -> npt.NDArray[np.uint8]:
    """Return the digest of every sample, or of the tuple of some of its columns.

    The samples are read in blocks of a few MiB.

    Returns:
        Shape ``(n, 16)``.

    Raises:
        ConfigError: a column does not exist, or a sample holds an object of unknown content.
    """
    source = access_to(as_iterator(dataset_iterator))
    keys = None if columns is None else keys_of(columns)
    if keys == []:
        raise ConfigError(
            "samples are compared by at least one column; for whole samples leave the columns out"
        )

    def read(positions: npt.NDArray[np.intp]) -> Any:
        if keys is None:
            return source.batch(positions)
        return tuple(source.columns(keys, positions))

    digests = np.empty((source.n_samples, DIGEST_BYTES), dtype=np.uint8)
    for start, batch in in_blocks(source.n_samples, read):
        block = row_digests(batch)
        digests[start : start + len(block)] = block
    return digests


def equal_groups(
    digests: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Find equal digests.

    Args:
        digests: shape ``(n, 16)``.

    Returns:
        ``first``: the position at which each distinct digest appears first, ascending, shape
        ``(n_distinct,)``. ``numbers``: for each digest the index of its equal among these, shape
        ``(n,)``. So ``digests[first][numbers]`` equals ``digests``.
    """
    classes = class_numbers(digests.view(f"V{DIGEST_BYTES}").reshape(len(digests)), "")
    return classes.first_positions, classes.numbers.astype(np.intp)
