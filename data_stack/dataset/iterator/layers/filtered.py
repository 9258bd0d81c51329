"""The samples of an iterator for which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import ColumnKey, DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.positions import IndexArrayOfInts, narrow
from data_stack.exception import ConfigError
from data_stack.util.functions import check_takes, explain_tuple_index, stopped_by
from data_stack.values.stacked_values import as_array
from data_stack.values.stacking import keys_of, list_values

_Predicate = Callable[..., Any]
_Columns = Union[ColumnKey, Sequence[ColumnKey], None]


@layer("filtered", columns=["column"])
class FilteredDatasetIterator(DatasetIteratorView):
    """The samples of ``dataset_iterator`` for which ``predicate`` is true, in their order.

    They are found when this is made: every sample is read once, from first to last, in blocks of a
    few MiB; with ``column`` only those columns are read. Then 4 bytes are kept for each sample
    found (8 in an iterator of more than 2**31). A pickle carries the positions, so another process
    does not read again; a predicate that cannot be pickled, such as a lambda, is left behind.

    Args:
        dataset_iterator: the iterator looked through; it is not closed.
        predicate: returns whether a sample stays: a bool, or anything that ``bool()`` takes.

            * With one ``column``, it takes the value of that column. Numbers are Python's, so that
              ``lambda label: label in {1, 2}`` works; numpy times are ``datetime64``; values with a
              shape are arrays (not to be written to); all others are as they are in the sample.
            * With a list of columns, it takes their values, one argument each.
            * If ``batched``, it takes many samples at once: the batch as ``read_batch`` returns it,
              or the columns that are named, one argument each. It returns a bool for each sample:
              an array, tensor or list, shape ``(n,)``. It is called once for each block, so the
              answer for a sample must not depend on the others.
        column: what to read; None for whole samples.
        batched: whether the predicate takes many samples at once.

    Raises:
        ConfigError: a column does not exist, or a batched predicate did not return one bool per
            sample.
        Exception: what the predicate raises, with a note of the position from Python 3.11 on. Its
            StopIteration becomes an EarlyEndError.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        predicate: _Predicate,
        *,
        column: _Columns = None,
        batched: bool = False,
    ) -> None:
        keys = None if column is None else keys_of(column)
        if keys is not None and not keys:
            raise ConfigError(
                "a filter reads at least one column; for whole samples leave `column` out"
            )
        _check_predicate(predicate, keys, is_batched=batched)
        source = access_to(as_iterator(dataset_iterator))
        positions = _find_positions(source, _Filter(predicate, keys, batched))
        super().__init__(dataset_iterator, positions)
        # A copy: the caller may change a list of columns afterwards.
        self._made_with = {"predicate": predicate, "column": copy(column), "batched": batched}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        predicate = self._made_with["predicate"]
        # pickle finds a function by its name, which does not work for "<lambda>" and
        # "f.<locals>.g".
        cannot_be_pickled = "<" in getattr(predicate, "__qualname__", "")
        if cannot_be_pickled:
            name = f"{predicate.__module__}.{predicate.__qualname__}"
            stand_in = f"{name}, which stayed in another process; define it at the top of a module"
            state["_made_with"] = {**self._made_with, "predicate": stand_in}
        return state


class _Filter(NamedTuple):
    """A predicate, and what it takes.

    Attributes:
        predicate: returns whether a sample stays.
        keys: the columns whose values it takes, one argument each; None for whole samples.
        is_batched: whether it takes many samples at once.
    """

    predicate: _Predicate
    keys: list[ColumnKey] | None
    is_batched: bool


def _check_predicate(predicate: Any, keys: list[ColumnKey] | None, *, is_batched: bool) -> None:
    if not callable(predicate):
        raise ConfigError(f"a predicate is a function, got {predicate!r:.80}")
    if keys is not None:
        arguments = [f"column {key!r}" for key in keys]
    else:
        arguments = ["a batch" if is_batched else "a sample"]
    check_takes(
        predicate,
        arguments,
        'Name the columns that it looks at: filter(predicate, column=["height", "width"])',
    )


def _find_positions(source: SampleAccess, sample_filter: _Filter) -> IndexArrayOfInts:
    """Return the positions of the samples that stay."""

    def read(positions: IndexArrayOfInts) -> tuple[list[Any], int]:
        return _read_arguments(source, sample_filter, positions), len(positions)

    positions_of_blocks: list[IndexArrayOfInts] = []
    for start, (arguments, n_samples) in in_blocks(source.n_samples, read):
        stays = _find_staying(sample_filter, arguments, start, n_samples)
        positions_of_blocks.append(narrow(start + np.flatnonzero(stays), source.n_samples))
    if not positions_of_blocks:
        return np.empty(0, dtype=np.intp)
    return np.concatenate(positions_of_blocks)


def _read_arguments(
    source: SampleAccess, sample_filter: _Filter, positions: IndexArrayOfInts
) -> list[Any]:
    """Return for each argument of the predicate its values for a block of samples."""
    if sample_filter.keys is not None:
        columns: list[Any] = source.columns(sample_filter.keys, positions)
        if sample_filter.is_batched:
            return columns
        return [list_values(column) for column in columns]
    if sample_filter.is_batched:
        return [source.batch(positions)]
    return [source.samples(positions)]


def _find_staying(
    sample_filter: _Filter, arguments: list[Any], start: int, n_samples: int
) -> npt.NDArray[np.bool_] | list[bool]:
    """Return for each sample of a block whether it stays.

    Args:
        sample_filter: the predicate, and what it takes.
        arguments: the values of its arguments, see :func:`_read_arguments`.
        start: the position of the first sample of the block.
        n_samples: the number of samples in the block.

    Returns:
        A bool for each sample, shape ``(n_samples,)``.
    """
    predicate = sample_filter.predicate
    stays: list[bool] = []
    try:
        if sample_filter.is_batched:
            mask = as_array(predicate(*arguments))
            _check_mask(mask, start, n_samples)
            return mask
        if len(arguments) == 1:
            for value in arguments[0]:
                stays.append(bool(predicate(value)))
        else:
            for values in zip(*arguments, strict=True):
                stays.append(bool(predicate(*values)))
    except Exception as problem:
        error = _explain(problem, sample_filter, arguments)
        if hasattr(error, "add_note"):
            # Python 3.10 has no notes.
            error.add_note(f"while the predicate looked at position {start + len(stays)}")
        if error is problem:
            raise
        raise error from problem
    return stays


def _explain(problem: Exception, sample_filter: _Filter, arguments: list[Any]) -> Exception:
    """Return the error to raise for what a predicate raised."""
    if isinstance(problem, StopIteration):
        # It would end a loop of the caller.
        return stopped_by(sample_filter.predicate)
    gets_samples = sample_filter.keys is None and not sample_filter.is_batched
    if isinstance(problem, TypeError) and gets_samples:
        first_sample = arguments[0][0]
        return explain_tuple_index(problem, first_sample)
    return problem


def _check_mask(mask: npt.NDArray[Any], start: int, n_samples: int) -> None:
    if mask.dtype == bool and mask.shape == (n_samples,):
        return
    raise ConfigError(
        f"a batched predicate of the samples {start} to {start + n_samples - 1} returns as many "
        f"bools; it returned shape {mask.shape} and dtype {mask.dtype}"
    )
