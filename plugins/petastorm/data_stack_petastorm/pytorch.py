"""Petastorm's torch loaders: batches of a reader's rows as tensors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, LoaderStateError, MissingDependencyError
from data_stack.loader import Loader
from data_stack.loader.conversion import MissingValuesError
from data_stack_petastorm.buffer import shuffle
from data_stack_petastorm.columns import NanForNull, check_reader, names_left_out
from data_stack_petastorm.iteration import Reader, n_rows_of, sharding_of
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.shards import Sharding

try:
    import torch
    from torch.utils.data import default_collate

    from data_stack.loader.torch import collate
    from data_stack_petastorm.tensors import (
        OBJECTS,
        RowCollate,
        as_tensor,
        by_field,
        refusal,
        sanitize_pytorch_types,
    )
except ImportError as error:
    raise MissingDependencyError("data_stack_petastorm.pytorch", "torch", "torch") from error

_ROWS_AT_ONCE: Final = 1024
#: The name that programs of Petastorm use.
_sanitize_pytorch_types = sanitize_pytorch_types


def decimal_friendly_collate(batch: Any) -> Any:
    """Collate as torch's ``default_collate``, but keep Decimals and strings as a list; dicts become a dict, tuples a list.

    Args:
        batch: rows, or the values of one field.
    """
    first = batch[0]
    if isinstance(first, OBJECTS):
        return batch
    if isinstance(first, Mapping):
        return {key: decimal_friendly_collate([row[key] for row in batch]) for key in first}
    if isinstance(first, Sequence):
        return [decimal_friendly_collate(values) for values in zip(*batch, strict=True)]
    return default_collate(batch)


class LoaderBase:
    """Passes over batches, one pass at a time; subclasses implement ``_iter_impl``."""

    def __init__(self) -> None:
        self._in_iter: bool | None = None

    def _iter_impl(self) -> Iterator[Any]:
        """Iterate over the batches of one pass."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """Begin another pass.

        Raises (while iterating):
            RuntimeError: another iterator of this loader is in use.
        """
        if self._in_iter:
            raise RuntimeError(
                "You must finish a full pass of Petastorm DataLoader before making another pass from the beginning: "
                "two passes would take rows from one reader. Make a reader and a loader for each pass"
            )
        self._in_iter = True
        try:
            yield from self._iter_impl()
        finally:
            self._in_iter = False


class _ReaderLoader(LoaderBase):
    """Common part of the loaders of a reader: batches in the reader's order, for any number of passes."""

    def __init__(
        self,
        reader: Any,
        batch_size: int,
        shuffling_queue_capacity: int,
        drop_last: bool,
        collate_fn: Any = None,
    ) -> None:
        super().__init__()
        check_reader(reader)
        self.reader, self.batch_size = reader, check_integer("batch_size", batch_size, at_least=1)
        self.shuffling_queue_capacity = shuffling_queue_capacity
        self._drop_last, self._collate = bool(drop_last), collate_fn
        self._n_passes, self._is_entered = 0, False
        self._left_out = names_left_out(reader, warns=True)
        self._nan_for_null = NanForNull(
            as_schema(reader.schema) if getattr(reader, "fills_nulls", False) else ()
        )
        if isinstance(collate_fn, RowCollate):
            collate_fn.left_out, collate_fn.nan_for_null = self._left_out, self._nan_for_null
        self._loader = self._new_loader()

    def _new_loader(self, sharding: Sharding | None = None) -> Loader | None:
        """Make a loader of the reader's rows; None for readers whose rows must be taken one by one."""
        if not isinstance(self.reader, Reader) or self.reader.drops_rows:
            return None
        return self.reader.loader(
            self.batch_size,
            shuffling_queue_capacity=self.shuffling_queue_capacity,
            drop_last=self._drop_last,
            collate=self._collate,
            sharding=sharding,
        )

    def _field(self, name: str, column: Any) -> Any:
        """Convert a column for the batch.

        Args:
            name: name of the field.
            column: a tensor of shape ``(n, ...)``, or a list of values that are not tensors.
        """
        raise NotImplementedError

    def _iter_impl(self) -> Iterator[Any]:
        """Iterate over the reader's epochs; each pass begins with the next epoch.

        Raises (while iterating):
            TypeError: torch has no tensors for the values of a field; the message names it.
            LoadingError: a row could not be read.
        """
        if self._collate is not None and self._loader is not None:
            yield from self._loader
            return
        if self._collate is not None:
            # not map(), which would end where the function raises StopIteration
            for rows in self._batches_of_rows():
                yield self._collate(rows)
            return
        batches = (
            self._loader.torch()
            if self._loader is not None
            else map(collate, self._batches_of_rows())
        )
        try:
            for batch in batches:
                yield by_field(batch, self._field, self._left_out)
        except MissingValuesError as error:
            raise (
                refusal(error.column[-1], "rows without a value (None)") if error.column else error
            ) from None

    def _batches_of_rows(self) -> Iterator[list[dict[Any, Any]]]:
        if self._n_passes or getattr(self.reader, "last_row_consumed", False):
            getattr(self.reader, "restart", self.reader.reset)()  # works in the middle of rows
        self._n_passes += 1
        seed = f"{getattr(self.reader, 'seed', 0)} {self._n_passes}"
        given = (by_field(row, self._nan_for_null.value) for row in _rows_of(self.reader))
        rows = shuffle(given, self.shuffling_queue_capacity, seed)
        batch: list[dict[Any, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self._drop_last:
            yield batch

    def __len__(self) -> int:
        """The number of batches of an iteration.

        Raises:
            TypeError: the loader is endless, or takes rows one by one.
        """
        if self._loader is None:
            raise TypeError("this loader takes rows one by one and has no length")
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loop as plain JSON data, to resume with any number of shards and workers.

        Raises:
            ConfigError: the loader takes rows one by one.
        """
        return self._need_loader().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration resume where :meth:`state_dict` was called.

        Raises:
            LoaderStateError: the state is invalid, or of other rows or another order; or it is of shards with another seed.
        """
        self._need_loader()
        sharding = sharding_of(state)
        loader: Any = self._new_loader(sharding)
        loader.load_state_dict(state)
        if (
            self.reader.has_own_seed
            and state["seed"] != self.reader.seed
            and (sharding.n_shards > 1 or loader.shard[1] > 1)
        ):
            raise LoaderStateError(
                f"this state has the seed {state['seed']}, the reader has {self.reader.seed}. Ranks with different seeds must "
                f"each load their own state; to load one state on all ranks, make all readers with its seed"
            )
        self._need_loader().close()
        self._loader = loader.__enter__() if self._is_entered else loader
        self._in_iter = False

    def _need_loader(self) -> Loader:
        if self._loader is None:
            raise ConfigError("this loader takes rows one by one and has no state")
        return self._loader

    def __enter__(self) -> Any:
        self._is_entered = True
        if self._loader is not None:
            self._loader.__enter__()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_entered = False
        if self._loader is not None:
            self._loader.__exit__(error_type, error, traceback)
        self.reader.stop()
        self.reader.join()


class DataLoader(_ReaderLoader):
    """Batches of a reader's rows: dicts of tensors of shape ``(batch_size, …)``; for n-grams one dict per offset.

    ::

        with DataLoader(make_reader("file:///data/frames", num_epochs=10, seed=7), batch_size=64) as loader:
            for batch in loader:
                batch["image"]

    With the default ``collate_fn``, rows are read and shuffled as columns, never one by one. Numbers become tensors without a
    copy; ``uint16`` becomes ``int32``, ``uint32`` ``int64`` and ``bool`` ``uint8``, as in Petastorm. Strings, bytes and Decimals
    become lists; with :func:`make_batch_reader` they are refused. Values that are None and arrays of text are refused with any
    ``collate_fn``; the message names the field. Floats without a value are NaN with :func:`make_batch_reader` and with
    ``nulls="nan"``.

    Args:
        reader: a reader of :func:`make_reader` or :func:`make_batch_reader`, which determines order, shard, epochs and workers;
            or a WeightedSamplingReader, whose rows are taken one by one.
        batch_size: rows per batch; the last one may have fewer.
        collate_fn: makes a batch from a list of rows, which are dicts; it runs in the workers.
        shuffling_queue_capacity: minimum number of rows to shuffle together, rounded up to whole row groups, which are in memory
            together. 0: the reader's order.
        drop_last: whether to drop the last batch of an epoch if it is shorter.

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
    ) -> None:
        check_reader(reader)
        is_batched = bool(reader.batched_output)
        collate_rows = (
            None if collate_fn is decimal_friendly_collate else RowCollate(collate_fn, is_batched)
        )
        super().__init__(reader, batch_size, shuffling_queue_capacity, drop_last, collate_rows)
        self.collate_fn = collate_fn

    def _field(self, name: str, column: Any) -> Any:
        if (
            isinstance(column, list)
            and not self.reader.batched_output
            and all(isinstance(each, OBJECTS) for each in column)
        ):
            return column
        return as_tensor(name, column)


class BatchedDataLoader(_ReaderLoader):
    """As :class:`DataLoader`, for columns of numbers; ``transform_fn`` converts the array of each column.

    Args:
        reader: as for :class:`DataLoader`.
        batch_size: likewise.
        transform_fn: converts an array of shape ``(batch_size, …)``, also to a device or dtype; None: ``torch.as_tensor``.
        shuffling_queue_capacity: as for :class:`DataLoader`.
        drop_last: likewise.

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
    ) -> None:
        super().__init__(reader, batch_size, shuffling_queue_capacity, drop_last)
        self.transform_fn = transform_fn or torch.as_tensor

    def _field(self, name: str, column: Any) -> Any:
        return self.transform_fn(as_tensor(name, column).numpy())


class InMemBatchedDataLoader:
    """Batches of rows that are read once and kept as tensors: ``num_epochs`` epochs in one loop.

    Args:
        reader: as for :class:`DataLoader`; it is stopped when the rows have been read.
        batch_size: rows per batch; the last of an epoch may have fewer.
        transform_fn: as for :class:`BatchedDataLoader`, for whole columns.
        num_epochs: number of epochs of the loop; None: endless.
        seed: epoch e has the order of ``torch.randperm`` with the seed ``seed + e``, as in Petastorm.
        rows_capacity: maximum number of rows to keep; a warning says if an epoch of the reader has more. None: one epoch.
        shuffle: whether to shuffle the rows in each epoch.

    Raises:
        ConfigError: an argument is out of range, or the reader is endless and ``rows_capacity`` is None.
        TypeError: torch has no tensors for the values of a field; the message names it.
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
    ) -> None:
        check_reader(reader)
        check_integer("batch_size", batch_size, at_least=1)
        for name, value, least in (
            ("rows_capacity", rows_capacity, 1),
            ("num_epochs", num_epochs, 0),
        ):
            if value is not None:
                check_integer(name, value, at_least=least)
        self._batch_size, self._num_epochs, self._seed, self._shuffle = (
            batch_size,
            num_epochs,
            seed,
            bool(shuffle),
        )
        n_in_epoch = reader.loader(1).plan.n_batch_samples() if isinstance(reader, Reader) else None
        if n_in_epoch is None and rows_capacity is None and reader.num_epochs is None:
            raise ConfigError(
                "an endless reader requires rows_capacity=, the number of rows to keep"
            )
        capacity = next(
            each for each in (rows_capacity, n_in_epoch, sys.maxsize) if each is not None
        )
        if n_in_epoch is not None and capacity < n_in_epoch:
            warnings.warn(
                f"rows_capacity keeps the first {capacity:,} of {n_in_epoch:,} rows: pass rows_capacity=None for all",
                stacklevel=2,
            )
        # the same batch size on all shards, or they would divide the rows differently
        n_at_once = min(_ROWS_AT_ONCE, rows_capacity or _ROWS_AT_ONCE)
        self._columns = _keep(reader, n_at_once, capacity, transform_fn or torch.as_tensor)
        self._in_iter = False

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches, which are dicts of tensors.

        Raises (while iterating):
            RuntimeError: this is not the first loop; one loop has all epochs, see ``num_epochs``.
        """
        if self._in_iter:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times: pass num_epochs, and loop once"
            )
        self._in_iter = True
        n_rows = n_rows_of(self._columns)
        epoch = 0
        while n_rows and (self._num_epochs is None or epoch < self._num_epochs):
            order = torch.arange(n_rows)
            if self._shuffle:
                order = torch.randperm(
                    n_rows, generator=torch.Generator().manual_seed(self._seed + epoch)
                )
            for rows in torch.split(order, self._batch_size):
                yield by_field(
                    self._columns, lambda _, column, rows=rows: column[rows.to(column.device)]
                )
            epoch += 1

    def __len__(self) -> int:
        """The number of batches of the loop.

        Raises:
            TypeError: the loader is endless.
        """
        if self._num_epochs is None:
            raise TypeError("an endless loader has no length")
        return -(-n_rows_of(self._columns) // self._batch_size) * self._num_epochs

    def __enter__(self) -> InMemBatchedDataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the rows stay in memory."""


def _keep(
    reader: Any, n_at_once: int, capacity: int, transform_fn: Callable[[Any], Any]
) -> dict[Any, Any]:
    """Return the first ``capacity`` rows of a reader as tensors, and stop it."""
    parts: list[dict[Any, Any]] = []
    n_rows = 0
    with BatchedDataLoader(reader, n_at_once) as loader:
        for batch in loader:
            parts.append(batch)
            n_rows += n_rows_of(batch)
            if n_rows >= capacity:
                break

    def join(parts: list[dict[Any, Any]]) -> dict[Any, Any]:
        return {
            key: join([part[key] for part in parts])
            if isinstance(value, dict)
            else transform_fn(torch.cat([part[key] for part in parts])[:capacity].numpy())
            for key, value in parts[0].items()
        }

    return join(parts) if parts else {}


def _load_rows_into_mem(
    reader: Any, transform_fn: Callable[[Any], Any], rows_capacity: int
) -> tuple[Any, list[Any]]:
    """Return names and columns of the first ``rows_capacity`` rows of a reader, and stop it."""
    columns = _keep(reader, min(_ROWS_AT_ONCE, rows_capacity), rows_capacity, transform_fn)
    return columns.keys(), list(columns.values())


# ---------------------------------------------------------------------- rows of any reader


def _rows_of(reader: Any) -> Iterator[dict[Any, Any]]:
    """Iterate over the rows of any reader as dicts; for n-grams, dicts of dicts by offset."""
    for given in reader:
        if not reader.batched_output:
            yield _as_dict(given)
            continue
        batch = _as_dict(given)
        for place in range(n_rows_of(batch)):
            yield by_field(batch, lambda _, column, place=place: column[place])


def _as_dict(row: Any) -> dict[Any, Any]:
    return (
        {step: part._asdict() for step, part in row.items()}
        if isinstance(row, dict)
        else row._asdict()
    )
