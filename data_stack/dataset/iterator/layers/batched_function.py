"""Calls of functions that map many samples at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator
from data_stack.exception import ConfigError
from data_stack.util.functions import stopped_by
from data_stack.values.stacked_values import as_array, stack_values
from data_stack.values.stacking import ColumnArray

#: The largest read while samples are iterated over.
_MAX_SAMPLES_OF_READ = 256


def call_batched(
    function: Callable[..., Any], batch: Any, mixed_seed: int | None, positions: IndexArrayOfInts
) -> Any:
    """Return what ``function`` returns for a batch.

    Args:
        function: takes the batch; with a seed, also a list of random generators, one for each row.
        batch: columns, or one column.
        mixed_seed: what the random generators are derived from; None for a function without one.
        positions: the position of the sample of each row, shape ``(n_rows,)``.

    Raises:
        EarlyEndError: the function raised StopIteration.
    """
    try:
        if mixed_seed is None:
            return function(batch)
        generators = [derive_generator(mixed_seed, position) for position in positions.tolist()]
        return function(batch, generators)
    except StopIteration as error:
        raise stopped_by(function) from error


def check_mapped_column(
    values: Any, n_rows: int, function: Callable[..., Any], place: str = ""
) -> ColumnArray:
    """Return what a batched function returned for a column, as an array.

    Its dtype and shape are those of the values, stacked one by one.

    Args:
        values: an array, a tensor or a list.
        n_rows: the number of values expected.
        function: the function, which the error names.
        place: which column it is, for the error, such as ``" in column 0"``.

    Raises:
        ConfigError: ``values`` are something else, or not ``n_rows``.
    """
    column = _as_column(values)
    if column is None or column.ndim == 0:
        what = f"a {type(values).__name__}"
    elif len(column) == n_rows:
        return column
    else:
        what = f"{len(column)} values"
    raise ConfigError(
        f"a batched map returned {what}{place}; expected an array, tensor or list of {n_rows} "
        f"values (a list is one column, several columns are a tuple): its function is {function!r}"
    )


def _as_column(values: Any) -> ColumnArray | None:
    """Return an array, tensor or list as a column; None for anything else."""
    if not hasattr(values, "__array__"):
        is_list = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
        if not is_list:
            return None
        return stack_values(list(values))
    try:
        array = as_array(values)
    except TypeError:
        # It is a tensor of a dtype that numpy lacks.
        array = stack_values(list(values))
    # Text and bytes are Python objects in samples; objects may be numbers.
    needs_stacking = array.ndim == 1 and array.dtype.kind in "OSU"
    if needs_stacking:
        return stack_values(array.tolist())
    return array


def iterate_in_growing_reads(
    read: Callable[[IndexArrayOfInts], list[Sample]], start: int, stop: int
) -> Iterator[Sample]:
    """Iterate over samples that are read in batches.

    The first batch is one sample, so that it is yielded soon. Each following batch has twice the
    samples, up to 256.

    Args:
        read: reads the samples at positions of shape ``(n,)``.
        start: the position of the first sample.
        stop: the position after the last sample.
    """
    n_samples = 1
    while start < stop:
        end = min(start + n_samples, stop)
        yield from read(np.arange(start, end, dtype=np.intp))
        start = end
        n_samples = min(2 * n_samples, _MAX_SAMPLES_OF_READ)
