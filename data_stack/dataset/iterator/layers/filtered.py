"""The samples of an iterator for which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, access_to
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

    They are found when this is made: every sample is read once, from first to last, in blocks of a few MiB; with ``column`` only
    those columns are read. Then 4 bytes are kept for each sample found (8 in an iterator of more than 2**31). A pickle carries
    the positions, so another process does not read again; a predicate that cannot be pickled, such as a lambda, stays behind.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        predicate: returns whether a sample stays: a bool, or anything that ``bool()`` takes.

            * With one ``column``, it is given that column's value. Numbers arrive as Python's, so that
              ``lambda label: label in {1, 2}`` works; numpy times as ``datetime64``; values with a shape as arrays (not to be
              written to); everything else as it is in the sample.
            * With a list of columns, it is given their values, one argument each.
            * ``batched``, it takes many samples at once: the batch as ``read_batch`` returns it; with ``column`` that column, or
              those columns one argument each. It returns a bool for each sample: an array, tensor or list, shape ``(n,)``. It is
              called once for each block, so one sample's answer must not depend on the others.
        column: what to read; None for whole samples.
        batched: whether the predicate takes many samples at once.

    Raises:
        ConfigError: a column does not exist, or a batched predicate did not return one bool per sample. Errors of the predicate
            are not changed, except for StopIteration, which becomes an EarlyEndError; from Python 3.11 on they have a note of the
            position.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        predicate: _Predicate,
        *,
        column: _Columns = None,
        batched: bool = False,
    ) -> None:
        if not callable(predicate):
            raise ConfigError(f"a predicate is a function, got {predicate!r:.80}")
        receives = (
            ["a batch" if batched else "a sample"]
            if column is None
            else [f"column {key!r}" for key in keys_of(column)]
        )
        check_takes(
            predicate,
            receives,
            'Name the columns that it looks at: filter(predicate, column=["height", "width"])',
        )
        found = list(_find(access_to(as_iterator(dataset_iterator)), predicate, column, batched))
        super().__init__(
            dataset_iterator, np.concatenate(found) if found else np.empty(0, dtype=np.intp)
        )
        self._made_with = {"predicate": predicate, "column": column, "batched": batched}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        predicate = self._made_with["predicate"]
        if "<" in getattr(predicate, "__qualname__", ""):  # <lambda>, <locals>
            name = f"{predicate.__module__}.{predicate.__qualname__}"
            stand_in = f"{name}, which stayed in another process; define it at the top of a module"
            state["_made_with"] = {**self._made_with, "predicate": stand_in}
        return state


def _find(
    source: SampleAccess, predicate: _Predicate, column: _Columns, batched: bool
) -> Iterator[IndexArrayOfInts]:
    """The positions of the samples that stay, block by block."""
    keys = [] if column is None else keys_of(column)
    if column is not None and not keys:
        raise ConfigError(
            "a filter reads at least one column; for whole samples leave `column` out"
        )

    def read(positions: npt.NDArray[np.intp]) -> tuple[Any, int]:
        if column is None:
            return (source.batch(positions) if batched else source.samples(positions)), len(
                positions
            )
        return source.columns(keys, positions), len(positions)

    for start, (block, length) in in_blocks(source.n_samples, read):
        stays: Any = []
        try:
            if batched:
                stays = _mask(predicate, [block] if column is None else block, start, length)
            elif len(keys) == 1:
                for value in list_values(block[0]):
                    stays.append(bool(predicate(value)))
            else:
                arguments = (
                    zip(block) if column is None else zip(*map(list_values, block), strict=True)
                )
                for values in arguments:
                    stays.append(bool(predicate(*values)))
        except Exception as problem:
            error: Exception = problem
            if isinstance(problem, StopIteration):
                error = stopped_by(predicate)
            elif isinstance(problem, TypeError) and column is None and not batched:
                error = explain_tuple_index(problem, block[0])
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(f"while the predicate looked at position {start + len(stays)}")
            if error is problem:
                raise
            raise error from problem
        yield narrow(start + np.flatnonzero(stays), source.n_samples)


def _mask(
    predicate: _Predicate, arguments: Sequence[Any], start: int, length: int
) -> npt.NDArray[np.bool_]:
    mask = as_array(predicate(*arguments))
    if mask.dtype != bool or mask.shape != (length,):
        returned = f"it returned shape {mask.shape} and dtype {mask.dtype}"
        raise ConfigError(
            f"a batched predicate of the samples {start} to {start + length - 1} returns as many bools; {returned}"
        )
    return mask
