"""Petastorm's loaders for torch: batches of a reader's rows as tensors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from data_stack.dataset.iterator.indices import check_integer
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
    from data_stack_petastorm.tensors import OBJECTS, RowCollate, as_tensor, by_field, refusal, sanitize_pytorch_types
except ImportError as error:
    raise MissingDependencyError("data_stack_petastorm.pytorch", "torch", "torch") from error

_ROWS_AT_ONCE: Final = 1024
#: As programs of Petastorm call it.
_sanitize_pytorch_types = sanitize_pytorch_types


def decimal_friendly_collate(batch: Any) -> Any:
    """``default_collate`` of torch, but Decimals and strings are left as a list; of dicts a dict, of tuples a list.

    Args:
        batch: rows, or values of one field.
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
    """Passes over batches, one pass at a time; subclasses say in ``_iter_impl`` what the batches of a pass are."""

    def __init__(self) -> None:
        self._in_iter: bool | None = None

    def _iter_impl(self) -> Iterator[Any]:
        """The batches of one pass."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """Another pass, from its first batch on.

        Raises (while iterating):
            RuntimeError: an iterator of this loader is still in use, neither at its end nor dropped.
        """
        if self._in_iter:
            raise RuntimeError(
                "You must finish a full pass of Petastorm DataLoader before making another pass from the beginning: two would "
                "take the rows of one reader from each other. Make a reader and a loader for each of them"
            )
        self._in_iter = True
        try:
            yield from self._iter_impl()
        finally:
            self._in_iter = False


class _ReaderLoader(LoaderBase):
    """What the loaders of a reader share: batches in the reader's order, again and again."""

    def __init__(
        self, reader: Any, batch_size: int, shuffling_queue_capacity: int, drop_last: bool, collate_fn: Any = None
    ) -> None:
        super().__init__()
        check_reader(reader)
        self.reader, self.batch_size = reader, check_integer("batch_size", batch_size, at_least=1)
        self.shuffling_queue_capacity = shuffling_queue_capacity
        self._drop_last, self._collate = bool(drop_last), collate_fn
        self._n_passes, self._is_entered = 0, False
        self._left_out = names_left_out(reader, warns=True)
        self._nan_for_null = NanForNull(as_schema(reader.schema) if getattr(reader, "fills_nulls", False) else ())
        if isinstance(collate_fn, RowCollate):
            collate_fn.left_out, collate_fn.nan_for_null = self._left_out, self._nan_for_null
        self._loader = self._new_loader()

    def _new_loader(self, sharding: Sharding | None = None) -> Loader | None:
        """A loader of the reader's rows; None of a reader that draws from several, whose rows are taken one by one."""
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
        """A column in the form of the batch.

        Args:
            name: of the field.
            column: a tensor of shape ``(n, ...)``, or a list of what torch has no tensors for.
        """
        raise NotImplementedError

    def _iter_impl(self) -> Iterator[Any]:
        """The epochs of the reader, from their start; each pass begins another one.

        Raises (while iterating):
            TypeError: a field has values that torch has no tensors for; the message names it.
            LoadingError: a row could not be read.
        """
        if self._collate is not None:
            yield from self._loader if self._loader is not None else map(self._collate, self._batches_of_rows())
            return
        batches = self._loader.torch() if self._loader is not None else map(collate, self._batches_of_rows())
        try:
            for batch in batches:
                yield by_field(batch, self._field, self._left_out)
        except MissingValuesError as error:
            raise refusal(error.column[-1], "rows without a value (None)") if error.column else error from None

    def _batches_of_rows(self) -> Iterator[list[dict[Any, Any]]]:
        if self._n_passes or getattr(self.reader, "last_row_consumed", False):
            getattr(self.reader, "restart", self.reader.reset)()  # also in the middle of rows
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
            ConfigError: the reader draws from several.
        """
        return self._need_loader().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where :meth:`state_dict` was taken.

        Raises:
            LoaderStateError: the state is of other rows or another order, or no state; or it is of shards with another seed, so
                that of another rank.
        """
        self._need_loader()
        sharding = sharding_of(state)
        loader: Any = self._new_loader(sharding)
        loader.load_state_dict(state)
        if self.reader.has_own_seed and state["seed"] != self.reader.seed and (sharding.n_shards > 1 or loader.shard[1] > 1):
            raise LoaderStateError(
                f"this state has the seed {state['seed']}, the reader of this rank {self.reader.seed}: ranks with different "
                f"seeds load the state that each of them saved. To load one state on all ranks, make all readers with its seed"
            )
        self._need_loader().close()
        self._loader = loader.__enter__() if self._is_entered else loader
        self._in_iter = False

    def _need_loader(self) -> Loader:
        if self._loader is None:
            raise ConfigError("a loader of several readers has no state; begin its pass anew")
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
    on the same memory; ``uint16`` becomes ``int32``, ``uint32`` ``int64`` and ``bool`` ``uint8`` as in Petastorm;
    strings, bytes and Decimals are lists, but are refused of a :func:`make_batch_reader`, whose rows are those of its row
    groups. Rows without a value (None) and arrays of text are refused, with any ``collate_fn``: the message names the field. But
    floats without a value are NaN, of a :func:`make_batch_reader` or a reader with ``nulls="nan"``.

    Args:
        reader: of :func:`make_reader` or :func:`make_batch_reader`, whose order, shard, epochs and workers the batches have; or
            one that draws from several, whose rows are taken one by one.
        batch_size: rows of a batch; the last one may have fewer.
        collate_fn: of the list of rows of a batch, which are dicts; it runs in the workers.
        shuffling_queue_capacity: so many rows at least are mixed with each other: those of as many row groups as have them, which
            is what is held in memory. 0: in the reader's order.
        drop_last: whether the last batch of an epoch is left out if it is shorter.

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
        collate_rows = None if collate_fn is decimal_friendly_collate else RowCollate(collate_fn, is_batched)
        super().__init__(reader, batch_size, shuffling_queue_capacity, drop_last, collate_rows)
        self.collate_fn = collate_fn

    def _field(self, name: str, column: Any) -> Any:
        if isinstance(column, list) and not self.reader.batched_output and all(isinstance(each, OBJECTS) for each in column):
            return column
        return as_tensor(name, column)


class BatchedDataLoader(_ReaderLoader):
    """As :class:`DataLoader`; each column becomes what ``transform_fn`` makes of its array, and must be of numbers.

    Args:
        reader: as there.
        batch_size: as there.
        transform_fn: of an array of shape ``(batch_size, …)``; None for ``torch.as_tensor``. A device, a dtype: its affair.
        shuffling_queue_capacity: as there.
        drop_last: as there.

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
    """Rows of a reader, read once and kept as tensors, in batches: ``num_epochs`` times, in one loop.

    Args:
        reader: as for :class:`DataLoader`; it is stopped when the rows have been read.
        batch_size: rows of a batch; the last of an epoch may have fewer.
        transform_fn: as for :class:`BatchedDataLoader`, of the whole column.
        num_epochs: of an iteration; None: without an end.
        seed: of the order: epoch e has that of ``torch.randperm`` with the seed ``seed + e``, as in Petastorm.
        rows_capacity: rows that are kept at most; there is a warning if an epoch of the reader has more. None: one epoch.
        shuffle: whether rows come in another order in each epoch.

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
    ) -> None:
        check_reader(reader)
        check_integer("batch_size", batch_size, at_least=1)
        for name, value, least in (("rows_capacity", rows_capacity, 1), ("num_epochs", num_epochs, 0)):
            if value is not None:
                check_integer(name, value, at_least=least)
        self._batch_size, self._num_epochs, self._seed, self._shuffle = batch_size, num_epochs, seed, bool(shuffle)
        n_in_epoch = reader.loader(1).plan.n_batch_samples() if isinstance(reader, Reader) else None
        if n_in_epoch is None and rows_capacity is None and reader.num_epochs is None:
            raise ConfigError("the reader never ends: say how many of its rows are kept, rows_capacity=")
        capacity = next(each for each in (rows_capacity, n_in_epoch, sys.maxsize) if each is not None)
        if n_in_epoch is not None and capacity < n_in_epoch:
            warnings.warn(
                f"of {n_in_epoch:,} rows the first {capacity:,} are kept, as rows_capacity says: give rows_capacity=None for all",
                stacklevel=2,
            )
        # as many at once for each shard, or they would divide the rows in different ways
        n_at_once = min(_ROWS_AT_ONCE, rows_capacity or _ROWS_AT_ONCE)
        self._columns = _keep(reader, n_at_once, capacity, transform_fn or torch.as_tensor)
        self._in_iter = False

    def __iter__(self) -> Iterator[Any]:
        """The batches: dicts of tensors.

        Raises (while iterating):
            RuntimeError: they have been iterated over before; all epochs are in one loop, see ``num_epochs``.
        """
        if self._in_iter:
            raise RuntimeError(
                "InMemBatchedDataLoader couldn't be used multiple times: give the number of epochs as num_epochs, and loop once"
            )
        self._in_iter = True
        n_rows = n_rows_of(self._columns)
        epoch = 0
        while n_rows and (self._num_epochs is None or epoch < self._num_epochs):
            order = torch.arange(n_rows)
            if self._shuffle:
                order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(self._seed + epoch))
            for rows in torch.split(order, self._batch_size):
                yield by_field(self._columns, lambda _, column, rows=rows: column[rows.to(column.device)])
            epoch += 1

    def __len__(self) -> int:
        """How many batches an iteration gives.

        Raises:
            TypeError: it never ends.
        """
        if self._num_epochs is None:
            raise TypeError("this loader has no length: it never ends")
        return -(-n_rows_of(self._columns) // self._batch_size) * self._num_epochs

    def __enter__(self) -> InMemBatchedDataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        """The rows stay where they are."""


def _keep(reader: Any, n_at_once: int, capacity: int, transform_fn: Callable[[Any], Any]) -> dict[Any, Any]:
    """The first ``capacity`` rows of a reader as tensors; it is stopped then."""
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


def _load_rows_into_mem(reader: Any, transform_fn: Callable[[Any], Any], rows_capacity: int) -> tuple[Any, list[Any]]:
    """Names and columns of the first ``rows_capacity`` rows of a reader, which is stopped then."""
    columns = _keep(reader, min(_ROWS_AT_ONCE, rows_capacity), rows_capacity, transform_fn)
    return columns.keys(), list(columns.values())


# ---------------------------------------------------------------------- rows of any reader


def _rows_of(reader: Any) -> Iterator[dict[Any, Any]]:
    """The rows of any reader as dicts; of n-grams dicts for each offset."""
    for given in reader:
        if not reader.batched_output:
            yield _as_dict(given)
            continue
        batch = _as_dict(given)
        for place in range(n_rows_of(batch)):
            yield by_field(batch, lambda _, column, place=place: column[place])


def _as_dict(row: Any) -> dict[Any, Any]:
    return {step: part._asdict() for step, part in row.items()} if isinstance(row, dict) else row._asdict()
