"""Rows and row groups of a Parquet dataset as named tuples."""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset, Schema
from data_stack.loader import BlockShuffled, InOrder, Loader, Order
from data_stack.loader.plan import Uneven
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.columns import NanForNull
from data_stack_petastorm.errors import NoDataAvailableError
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.row_groups import RowGroups, parts_of_row_groups, permute_rows, the_one
from data_stack_petastorm.rows import RowMaker
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.shards import Sharding, Shards

#: Size of the chunks that are read together, and their maximum number of rows.
_CHUNK_BYTES, _MAX_CHUNK = 4 << 20, 512
#: Estimate of a size that differs from value to value.
_USUAL_EXTENT = 64
_END: Final = object()


class Reader(BaseReader):
    """An iterator of named tuples that is a context manager; :func:`make_reader` and :func:`make_batch_reader` return it.

    It runs for ``num_epochs`` epochs; :meth:`reset` restarts it. After ``break``, the next loop continues; after an error the
    reader tries the same row again. Workers run from the first row to the last, or to the end of the ``with`` block. Threads may
    share a reader; each row goes to one of them.

    Args:
        dataset: the dataset.
        iterator: the rows or n-grams of the dataset.
        block_lengths: number of samples of ``iterator`` in each row group, shape ``(n_row_groups,)``.
        fields: the fields of the rows, in their order.
        ngram: the n-gram; None for rows.
        batched: whether a tuple has the columns of a row group.
        of_groups: for ``batched``, other rows, and the function that transforms the columns of a row group of them; None: the
            rows of ``iterator``.
        shuffling: whether to shuffle row groups, whether to shuffle rows, and the number of row groups to mix.
        options: options of the loader: seed, epochs, shard, uneven, workers, worker_kind, prefetch. If ``uneven`` is None, the
            reader returns each row once, and shards of its :meth:`loader` make equally many steps.
        fills_nulls: whether loaders read floats without a value as NaN.
        drops_rows: whether the function of ``of_groups`` drops rows, so that :meth:`loader` cannot batch them.
        has_own_seed: whether the user passed the seed, so that other ranks may have other seeds.
        reported: arguments that ``diagnostics`` repeats.

    Attributes:
        schema: the :class:`~data_stack_petastorm.unischema.Unischema` of the rows.
    """

    def __init__(
        self,
        dataset: ParquetDataset,
        iterator: Any,
        *,
        block_lengths: Any,
        fields: Schema,
        ngram: NGram | None,
        batched: bool,
        shuffling: tuple[bool, bool, int],
        options: Mapping[str, Any],
        of_groups: tuple[Any, Callable[..., Any]] | None = None,
        fills_nulls: bool = False,
        drops_rows: bool = False,
        has_own_seed: bool = False,
        reported: Mapping[str, Any] | None = None,
    ) -> None:
        self.dataset, self.iterator, self.fields, self.ngram = dataset, iterator, fields, ngram
        self.schema = as_unischema(fields)
        self.num_epochs: int | None = options["epochs"]
        self.seed: int = options["seed"]
        self.batched_output = self.is_batched_reader = batched
        self.fills_nulls, self.drops_rows, self.has_own_seed = fills_nulls, drops_rows, has_own_seed
        self.last_row_consumed = self.stopped = False
        self._options, self._shuffling, self._lengths = (
            dict(options),
            shuffling,
            block_lengths[block_lengths > 0],
        )
        self._maker, self._of_groups, self._reported = (
            RowMaker(self.schema, ngram),
            of_groups,
            dict(reported or {}),
        )
        self._n_at_once = 1 if batched else self._rows_at_once()
        uneven: Uneven = options["uneven"] or "keep"
        self._loader = (
            self._row_group_loader(uneven)
            if batched
            else self.loader(self._n_at_once, uneven=uneven)
        )
        self._lock = threading.RLock()
        self._batches: Iterator[Any] | None = None
        self._rows: Iterator[Any] = iter(())
        if self._loader.plan.n_samples == 0:
            warnings.warn(
                f"No matching data is available for loading: {dataset!r:.200} is empty, or no row is selected",
                stacklevel=4,  # the caller of make_reader or make_batch_reader
            )
        if not batched:
            self._refuse_shards_without_rows()

    # ------------------------------------------------------------------ iteration

    def __next__(self) -> Any:
        """The next row, n-gram or row group.

        Raises:
            StopIteration: all epochs are over; :meth:`reset` restarts the reader.
            NoDataAvailableError: there are fewer row groups than shards.
            RuntimeError: the reader was stopped.
            LoadingError: a row could not be read; the message names it. The next call tries again.
            WorkerError: a worker died.
        """
        with self._lock:
            while (row := next(self._rows, _END)) is _END:
                self._rows = self._next_rows()
            return row

    def __len__(self) -> int:
        """The number of rows (or n-grams, or row groups) of the shard in all epochs.

        Raises:
            TypeError: the reader is endless.
        """
        if self.num_epochs is None:
            raise TypeError("an endless reader has no length")
        return self._loader.plan.n_batch_samples() * self.num_epochs

    def reset(self) -> None:
        """Restart with the next epoch, after the last row, an error or :meth:`stop`.

        Raises:
            NotImplementedError: rows were read, but not the last one. Call :meth:`stop` first to skip the rest.
        """
        if self._batches is not None and not self.stopped:
            raise NotImplementedError(
                "cannot reset a reader in the middle of its rows: read all of them first, or call stop() to skip the rest"
            )
        self.restart()

    def restart(self) -> None:
        """Restart with the next epoch, from any row."""
        self._forget()
        self.last_row_consumed = self.stopped = False

    def stop(self) -> None:
        """End the workers; :meth:`reset` restarts the reader."""
        self.stopped = True
        self._forget()
        self._loader.close()

    def __enter__(self) -> Reader:
        if self.stopped:
            self.reset()
        return self

    def _next_rows(self) -> Iterator[Any]:
        """Return the rows of the loader's next batch."""
        if self.stopped:
            raise RuntimeError(
                "Trying to read a sample of a stopped reader; it stops at the end of its with block. Call reset(), or enter "
                "another with block"
            )
        if self.last_row_consumed:
            raise StopIteration
        if self._batches is None:
            self._refuse_shards_without_rows()
            self._batches = iter(self._loader)
        before = self._loader.tell()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._batches, self.last_row_consumed = None, True
            raise
        except BaseException:
            self._batches = None
            self._loader.seek(*before)  # the next call tries again
            raise
        if not self.batched_output:
            return self._maker.rows(batch)
        if self._of_groups is not None and not n_rows_of(
            batch
        ):  # the transform dropped all of them
            return iter(())
        return iter([self._maker.batch(batch)])

    def _refuse_shards_without_rows(self) -> None:
        """Refuse more shards than rows, or than row groups of a ``batched`` reader; a DataLoader shards its rows."""
        plan = self._loader.plan
        if not 0 < plan.n_samples < plan.world or self._options["uneven"] == "keep":
            return
        what = "row groups" if self.batched_output else "rows"
        raise NoDataAvailableError(
            f"Number of row-groups in the dataset: {len(self._lengths)}. "
            f"There are fewer {what} ({plan.n_samples}) than shards ({plan.world}) in {self.dataset!r:.200}. Use fewer "
            f"shards, shard rows with make_reader or a DataLoader, or allow empty shards with uneven='keep'"
        )

    def _forget(self) -> None:
        self._batches, self._rows = None, iter(())

    # ------------------------------------------------------------------ figures

    @property
    def diagnostics(self) -> dict[str, Any]:
        """The loader's counts and times, also under Petastorm's names, which do not count prefetched batches."""
        stats = self._loader.stats()
        return {
            **asdict(stats),
            "output_queue_size": 0,
            "items_consumed": stats.n_batches,
            "items_produced": stats.n_batches,
            "items_inprocess": 0,
            **self._reported,
        }

    # ------------------------------------------------------------------ loaders

    def loader(
        self,
        batch_size: int,
        *,
        shuffling_queue_capacity: int = 0,
        drop_last: bool = False,
        collate: Any = None,
        transform: Callable[..., Any] | None = None,
        sharding: Sharding | None = None,
        uneven: Uneven | None = None,
        **options: Any,
    ) -> Loader:
        """Make a loader of batches of rows (or n-grams) in this reader's order, with its shard, epochs and workers.

        Args:
            batch_size: rows of a batch.
            shuffling_queue_capacity: minimum number of rows to shuffle together, rounded up to whole row groups.
            drop_last: whether to drop the last batch of an epoch if it is shorter.
            collate: as for :class:`~data_stack.loader.loader.Loader`.
            transform: likewise.
            sharding: the sharding of a state to be loaded, see :func:`sharding_of`; None: the reader's own.
            uneven: as for :class:`~data_stack.loader.loader.Loader`; None: that of the reader, or "pad".
            options: other options of the loader, such as ``device`` and ``timeout_seconds``.

        Raises:
            ConfigError: an argument is out of range.
        """
        shuffle_row_groups, shuffle_rows, n_mixed = self._shuffling
        capacity: Any = shuffling_queue_capacity
        if not isinstance(capacity, (int, np.integer)) or capacity < 0:
            raise ConfigError(
                f"shuffling_queue_capacity must be a number of rows, at least 0, got {capacity!r:.40}"
            )
        if capacity > 1 and len(self._lengths):
            n_mixed, shuffle_rows = (
                max(n_mixed, math.ceil(capacity / float(self._lengths.mean()))),
                True,
            )
        uneven = uneven or self._options["uneven"] or "pad"
        order_of = functools.partial(_order_of, shuffle_row_groups, shuffle_rows, n_mixed)
        if sharding is None:
            sharding = Sharding(self._options["shard"][1], batch_size, uneven)
        order = self._sharded(self._lengths, sharding, order_of)
        if self.fills_nulls and collate is None and (filling := NanForNull(self.fields, transform)):
            transform = filling
        options = {**self._options, "uneven": uneven, **options}
        return Loader(
            self.iterator,
            batch_size,
            shuffle=order,
            drop_last=drop_last,
            collate=collate,
            transform=transform,
            **options,
        )

    def _row_group_loader(self, uneven: Uneven) -> Loader:
        """Make a loader of the columns of one row group, or of a part of one, at a time."""
        _, shuffle_rows, n_mixed = self._shuffling
        lengths, n_of_each = parts_of_row_groups(self._lengths, n_mixed)
        order_of = functools.partial(_order_of, self._shuffling[0], self._shuffling[0], n_mixed)
        order = self._sharded(n_of_each, Sharding(self._options["shard"][1], 1, uneven), order_of)
        transform = permute_rows if shuffle_rows else None
        rows, make = (self.iterator, None) if self._of_groups is None else self._of_groups
        options = {**self._options, "uneven": uneven}
        return Loader(
            RowGroups(rows, lengths, make),
            1,
            shuffle=order,
            collate=the_one,
            transform=transform,
            **options,
        )

    def _sharded(self, lengths: Any, sharding: Sharding, order_of: Callable[[Any], Order]) -> Order:
        if sharding.n_shards == 1:
            return order_of(lengths)
        return Shards(lengths, sharding, order_of, reshuffles=self._shuffling[0])

    def _rows_at_once(self) -> int:
        n_bytes = 0
        n_steps = 1 if self.ngram is None else len(self.ngram.fields)
        for field in self.fields:
            item = field.dtype.itemsize if isinstance(field.dtype, np.dtype) else 16
            n_bytes += max(item, 8) * math.prod(
                _USUAL_EXTENT if size is None else size for size in field.shape
            )
        return min(max(_CHUNK_BYTES // max(1, n_bytes * n_steps), 1), _MAX_CHUNK)


def n_rows_of(batch: Mapping[Any, Any]) -> int:
    """Return the number of rows of columns, or of the columns of each offset of n-grams."""
    columns = (
        each
        for part in batch.values()
        for each in (part.values() if isinstance(part, dict) else [part])
    )
    return len(next(columns, ()))


def sharding_of(state: Any) -> Sharding:
    """Return the sharding that a loader's state describes; one shard if it describes none."""
    order = state.get("order") if isinstance(state, Mapping) else None
    if not isinstance(order, Mapping) or order.get("order") != "shards":
        return Sharding(1, 1, "pad")
    return Sharding(order["n_shards"], order["batch_size"], order["uneven"])


def _order_of(shuffle_row_groups: bool, shuffle_rows: bool, n_mixed: int, lengths: Any) -> Order:
    """Return the order of the rows of row groups with these lengths."""
    if shuffle_rows or n_mixed > 1:
        return BlockShuffled(block_lengths=lengths, window=n_mixed, blocks=shuffle_row_groups)
    if shuffle_row_groups:
        return BlockShuffled(block_lengths=lengths, window=1, samples=False)
    return InOrder(lengths)
