"""Petastorm's loaders for torch: batches of a reader's rows as tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import checked_integer
from data_stack.dataset.iterator.stacking import join_columns
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.conversion import FunctionConversion
from data_stack.loader.loader import Loader
from data_stack.loader.petastorm.buffered import columns_of_reader, in_batches, nested_columns
from data_stack.loader.petastorm.reader import Reader, lanes_of

try:
    import torch
    from torch.utils.data import default_collate
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.petastorm.torch", "torch", "torch") from error

__all__ = ["BatchedDataLoader", "DataLoader", "InMemBatchedDataLoader", "decimal_friendly_collate"]

#: What Petastorm makes of dtypes that torch lacked when it was written.
_PROMOTED: Final = {"u2": np.int32, "u4": np.int64, "b1": np.uint8}
_ROWS_AT_ONCE: Final = 1024


def decimal_friendly_collate(batch: Any) -> Any:
    """``default_collate`` of torch, but Decimals and strings are left as a list; of dicts a dict, of tuples a list.

    Args:
        batch: rows, or values of one field.
    """
    first = batch[0]
    if isinstance(first, (Decimal, str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, Sequence):
        return [decimal_friendly_collate(values) for values in zip(*batch, strict=True)]
    return default_collate(batch)


class _ReaderLoader:
    """What the loaders of a reader share: batches in the reader's order, again and again."""

    def __init__(self, reader: Any, batch_size: int, shuffling_queue_capacity: int, drop_last: bool, collate: Any = None) -> None:
        self.reader = reader
        self.batch_size = checked_integer("batch_size", batch_size, at_least=1)
        self.shuffling_queue_capacity = checked_integer("shuffling_queue_capacity", shuffling_queue_capacity, at_least=0)
        self._drop_last, self._collate = bool(drop_last), collate
        self._n_passes, self._is_entered = 0, False
        self._loader = self._made_loader(None)

    def _made_loader(self, lanes: tuple[int, int] | None) -> Loader | None:
        if not isinstance(self.reader, Reader):
            return None
        return self.reader.loader(
            self.batch_size,
            shuffling_queue_capacity=self.shuffling_queue_capacity,
            drop_last=self._drop_last,
            collate=self._collate,
            lanes=lanes,
        )

    def _converted(self, batch: Any) -> Any:
        """A batch of columns as it is handed out."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """The epochs of the reader, from their start; each iteration begins another one.

        Raises (while iterating):
            TypeError: a field has values that torch has no tensors for; the message names it.
            LoadingError: a row could not be read.
        """
        if self._loader is None:
            return self._buffered()
        if self._collate is not None:
            return iter(self._loader)
        return iter(self._loader.converted(FunctionConversion(self._converted)))

    def _buffered(self) -> Iterator[Any]:
        """Of a reader that is none of ours, or of several."""
        if self.reader.last_row_consumed or self._n_passes:
            self.reader.reset()
        self._n_passes += 1
        draws = None
        if self.shuffling_queue_capacity:
            draws = derived_generator(derived_seed("buffer", getattr(self.reader, "_seed", 0)), self._n_passes)
        chunks = columns_of_reader(self.reader, max(self.batch_size, min(_ROWS_AT_ONCE, self.shuffling_queue_capacity or 256)))
        ngram = self.reader.ngram
        steps = () if ngram is None else tuple(ngram.fields)
        for columns in in_batches(chunks, self.batch_size, capacity=self.shuffling_queue_capacity, draws=draws):
            n_rows = len(next(iter(columns.values())))
            if self._drop_last and n_rows < self.batch_size:
                return
            batch = nested_columns(columns, steps)
            yield self._converted(batch) if self._collate is None else self._collate(_rows(batch, n_rows))

    def __len__(self) -> int:
        """How many batches an iteration gives.

        Raises:
            TypeError: it never ends, or the reader is of several.
        """
        if self._loader is None:
            raise TypeError("a loader of several readers has no length: it ends when one of them does")
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: plain JSON data, from which a loader of the same rows goes on, on any number of shards and workers.

        Raises:
            ConfigError: the reader is of several; its own state_dict() says where it is.
        """
        return self._known_loader().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where :meth:`state_dict` was taken.

        Raises:
            LoaderStateError: the state is of other rows or another order, or no state.
        """
        self._known_loader()
        loader = self._made_loader(lanes_of(state))
        if loader is None:
            return
        loader.load_state_dict(state)
        self._known_loader().close()
        self._loader = loader.__enter__() if self._is_entered else loader

    def _known_loader(self) -> Loader:
        if self._loader is None:
            raise ConfigError("a loader of several readers has no state of its own; save that of the reader between two passes")
        return self._loader

    def __enter__(self) -> Any:
        self._is_entered = True
        if self._loader is not None:
            self._loader.__enter__()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_entered = False
        if self._loader is not None:
            self._loader.__exit__(error_type, error, traceback)
        self.reader.stop()
        self.reader.join()


class DataLoader(_ReaderLoader):
    """Batches of a reader's rows: dicts of tensors of shape ``(batch_size, …)``, of n-grams such dicts for each offset.

    ::

        with DataLoader(make_reader("file:///data/frames", num_epochs=10, seed=7), batch_size=64) as loader:
            for batch in loader:
                batch["image"]

    With the default ``collate_fn`` rows are read, shuffled and handed over as columns, never one by one. Numbers become tensors
    on the same memory; ``uint16`` becomes ``int32``, ``uint32`` ``int64`` and ``bool`` ``uint8`` as in Petastorm
    (``promote=False`` leaves them); strings, bytes and Decimals are lists. The rows of a
    :func:`make_batch_reader` are those of its row groups.

    Args:
        reader: of :func:`make_reader` or :func:`make_batch_reader`, whose order, shard, epochs and workers the batches have; or
            one that draws from several.
        batch_size: rows of a batch; the last one may have fewer.
        collate_fn: of the list of rows of a batch, which are dicts; it runs in the workers.
        shuffling_queue_capacity: so many rows at least are mixed with each other: those of as many row groups as have them, which
            is what is held in memory. 0: in the reader's order.
        drop_last: whether the last batch of an epoch is left out if it is shorter.
        promote: whether dtypes become others as above.

    Raises:
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        collate_fn: Callable[[list[Any]], Any] = decimal_friendly_collate,
        shuffling_queue_capacity: int = 0,
        *,
        drop_last: bool = False,
        promote: bool = True,
    ) -> None:
        collate = None if collate_fn is decimal_friendly_collate else _RowCollate(collate_fn, promote)
        super().__init__(reader, batch_size, shuffling_queue_capacity, drop_last, collate)
        self.collate_fn, self._promotes = collate_fn, bool(promote)

    def _converted(self, batch: Any) -> Any:
        return _by_field(batch, lambda name, column: _tensor_or_list(name, column, self._promotes))


class BatchedDataLoader(_ReaderLoader):
    """As :class:`DataLoader`; each column becomes what ``transform_fn`` makes of its array, and must be of numbers.

    Args:
        reader: as there.
        batch_size: as there.
        transform_fn: of an array of shape ``(batch_size, …)``; None for ``torch.as_tensor``. A device, a dtype: its affair.
        shuffling_queue_capacity: as there.
        drop_last: as there.
        promote: as there.

    Raises:
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        shuffling_queue_capacity: int = 0,
        *,
        drop_last: bool = False,
        promote: bool = True,
    ) -> None:
        super().__init__(reader, batch_size, shuffling_queue_capacity, drop_last)
        self.transform_fn, self._promotes = transform_fn or torch.as_tensor, bool(promote)

    def _converted(self, batch: Any) -> Any:
        return _by_field(batch, lambda name, column: self.transform_fn(_numbers(name, column, self._promotes)))


class InMemBatchedDataLoader:
    """Rows of a reader, read once and kept as tensors, in batches: ``num_epochs`` times, whenever it is iterated over.

    Args:
        reader: as for :class:`DataLoader`; it is stopped when the rows have been read.
        batch_size: rows of a batch; the last of an epoch may have fewer.
        transform_fn: as for :class:`BatchedDataLoader`, of the whole column.
        num_epochs: of an iteration; None: without an end.
        seed: of the order: epoch e has that of ``torch.randperm`` with the seed ``seed + e``, as in Petastorm.
        rows_capacity: rows that are kept at most; there is a warning if an epoch of the reader has more. None: one epoch.
        shuffle: whether rows come in another order in each epoch.
        promote: as for :class:`DataLoader`.

    Raises:
        ConfigError: an argument is out of range, or the reader never ends and ``rows_capacity`` is None.
        TypeError: a field has values that torch has no tensors for; the message names it.
    """

    def __init__(
        self,
        reader: Any,
        batch_size: int = 1,
        transform_fn: Callable[[Any], Any] | None = None,
        num_epochs: int | None = 1,
        seed: int = 0,
        rows_capacity: int | None = 1024,
        shuffle: bool = False,
        *,
        promote: bool = True,
    ) -> None:
        self._batch_size = checked_integer("batch_size", batch_size, at_least=1)
        self._num_epochs = None if num_epochs is None else checked_integer("num_epochs", num_epochs, at_least=0)
        self._seed, self._shuffle = checked_integer("seed", seed), bool(shuffle)
        capacity = None if rows_capacity is None else checked_integer("rows_capacity", rows_capacity, at_least=1)
        n_in_epoch, loader = None, None
        if isinstance(reader, Reader):
            # as many for each shard, or they would divide the rows in different ways
            loader = reader.loader(_ROWS_AT_ONCE if capacity is None else min(_ROWS_AT_ONCE, capacity))
            n_in_epoch = loader.plan.n_batch_samples()
            capacity = n_in_epoch if capacity is None else capacity
        elif capacity is None:
            capacity = len(reader)
        if n_in_epoch is not None and capacity < n_in_epoch:
            warnings.warn(
                f"of {n_in_epoch:,} rows the first {capacity:,} are kept, as rows_capacity says: give rows_capacity=None for all",
                stacklevel=2,
            )
        self._columns = _kept(reader, loader, capacity, transform_fn or torch.as_tensor, promote)
        ngram = reader.ngram
        self._steps = () if ngram is None else tuple(ngram.fields)

    def __iter__(self) -> Iterator[Any]:
        """The batches: dicts of tensors."""
        n_rows = len(next(iter(self._columns.values()))) if self._columns else 0
        epoch = 0
        while n_rows and (self._num_epochs is None or epoch < self._num_epochs):
            order = None
            if self._shuffle:
                generator = torch.Generator()
                generator.manual_seed(self._seed + epoch)
                order = torch.randperm(n_rows, generator=generator)
            for start in range(0, n_rows, self._batch_size):
                stop = min(start + self._batch_size, n_rows)
                rows: Any = slice(start, stop) if order is None else order[start:stop]
                batch = {
                    key: column[rows].clone() if order is None else column[rows.to(column.device)]
                    for key, column in self._columns.items()
                }
                yield nested_columns(batch, self._steps)
            epoch += 1

    def __len__(self) -> int:
        """How many batches an iteration gives.

        Raises:
            TypeError: it never ends.
        """
        if self._num_epochs is None:
            raise TypeError("this loader has no length: it never ends")
        n_rows = len(next(iter(self._columns.values()))) if self._columns else 0
        return -(-n_rows // self._batch_size) * self._num_epochs

    def __enter__(self) -> InMemBatchedDataLoader:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The rows stay where they are."""


def _kept(reader: Any, loader: Loader | None, capacity: int, transform_fn: Callable[[Any], Any], promote: bool) -> dict[Any, Any]:
    """The first rows of a reader as tensors; it is stopped then.

    Args:
        reader: whose rows.
        loader: of that reader; None where it can give none.
        capacity: how many rows.
        transform_fn: makes a tensor of a column.
        promote: as for :class:`DataLoader`.
    """
    parts: list[dict[Any, npt.NDArray[Any]]] = []
    n_rows = 0
    chunks: Iterator[Any] = columns_of_reader(reader, _ROWS_AT_ONCE) if loader is None else map(_flat_columns, loader)
    for columns in chunks:
        n_new = min(len(next(iter(columns.values()))), capacity - n_rows)
        parts.append({key: column[:n_new] for key, column in columns.items()})
        n_rows += n_new
        if n_rows >= capacity:
            break
    if loader is not None:
        loader.close()
    reader.stop()
    reader.join()
    if not parts:
        return {}
    kept = {}
    for key in parts[0]:
        name = key[1] if isinstance(key, tuple) else key
        kept[key] = transform_fn(_numbers(name, join_columns([part[key] for part in parts]), promote))
    return kept


class _RowCollate:
    """A function of the rows of a batch, after their dtypes are those of torch."""

    def __init__(self, function: Callable[[list[Any]], Any], promote: bool) -> None:
        if not callable(function):
            raise ConfigError(f"collate_fn is a function of a list of rows, not {function!r:.80}")
        self._function, self._promotes = function, promote

    def __call__(self, rows: list[Any]) -> Any:
        if not self._promotes:
            return self._function(rows)
        return self._function([_by_field(row, lambda _, value: _promoted(value)) for row in rows])


# ---------------------------------------------------------------------- columns as tensors


def _by_field(batch: Mapping[Any, Any], function: Callable[[str, Any], Any]) -> dict[Any, Any]:
    """What a function makes of each column of a batch, or value of a row; of n-grams for each offset."""
    return {
        key: _by_field(value, function) if isinstance(value, dict) and not isinstance(key, str) else function(key, value)
        for key, value in batch.items()
    }


def _flat_columns(batch: Mapping[Any, Any]) -> dict[Any, Any]:
    """Columns by name; of n-grams by offset and name."""
    flat: dict[Any, Any] = {}
    for key, value in batch.items():
        if isinstance(value, dict):
            flat.update({(key, name): column for name, column in value.items()})
        else:
            flat[key] = value
    return flat


def _rows(batch: Mapping[Any, Any], n_rows: int) -> list[Any]:
    """Columns as rows."""
    rows: list[dict[Any, Any]] = [{} for _ in range(n_rows)]
    for key, column in batch.items():
        values = _rows(column, n_rows) if isinstance(column, dict) else column
        for row, value in zip(rows, values, strict=True):
            row[key] = value
    return rows


def _promoted(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and (dtype := _PROMOTED.get(value.dtype.str[1:])) is not None:
        return value.astype(dtype)
    return value


def _tensor_or_list(name: str, column: npt.NDArray[Any], promote: bool) -> Any:
    """A column as a tensor; of strings, bytes and Decimals the list of them."""
    if column.ndim == 1 and column.dtype.kind in "OUS":
        values = column.tolist()
        if all(isinstance(value, (str, bytes, Decimal)) for value in values):
            return values
    numbers = _numbers(name, column, promote)
    return torch.from_numpy(numbers if numbers.flags.writeable else numbers.copy())


def _numbers(name: str, column: npt.NDArray[Any], promote: bool) -> npt.NDArray[Any]:
    """A column of numbers, with a dtype of torch.

    Raises:
        TypeError: it has something else.
    """
    dtype = column.dtype
    if dtype.kind == "O" and len(column):
        if any(value is None for value in column):
            raise TypeError(
                f"field {name!r} has rows without a value (None), which torch has no tensors for: leave these rows out "
                f"(predicate=col({name!r}).is_not_null()), put something in their place (TransformSpec), or leave out the field"
            )
        if all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in column):  # of a field that may be missing
            return _numbers(name, np.array(column.tolist()), promote)
        if all(isinstance(value, np.ndarray) and value.dtype.kind in "biufc" for value in column):
            shapes = sorted({value.shape for value in column})
            if len(shapes) == 1:
                return _numbers(name, np.stack(list(column)), promote)
            raise TypeError(
                f"field {name!r} has arrays of different shapes in one batch, such as {shapes[0]} and {shapes[-1]}: bring them "
                f"into one by a TransformSpec, or collate them by a collate_fn of your own (or Loader(…, collate=Padded()))"
            )
    if dtype.kind not in "biufc":
        what = f"{type(column.flat[0]).__name__} values" if dtype.kind == "O" and column.size else f"dtype {dtype}"
        raise TypeError(
            f"field {name!r} has {what}, which torch has no tensors for: leave it out with schema_fields=, or make numbers of it "
            f"by a TransformSpec"
        )
    if promote and (promoted := _PROMOTED.get(dtype.str[1:])) is not None:
        return column.astype(promoted)
    return column
