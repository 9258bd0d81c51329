"""Rows and row groups of a Parquet dataset as named tuples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy.typing as npt

from data_stack.formats.parquet import ParquetDataset, Schema
from data_stack.loader import Loader, Order
from data_stack.loader.plan import Uneven
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.base_reader import BaseReader
from data_stack_petastorm.batches import count_rows
from data_stack_petastorm.errors import NoDataAvailableError
from data_stack_petastorm.nan_for_null import NanForNull
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.reader.chunk_size import choose_chunk_size
from data_stack_petastorm.reader.shuffling import Shuffling
from data_stack_petastorm.row_groups import (
    RowGroups,
    parts_of_row_groups,
    permute_rows,
    take_only_batch,
)
from data_stack_petastorm.rows import NGramMaker, RowMaker
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.shards import OrderMaker, Sharding, Shards
from data_stack_petastorm.unischema import Unischema

#: Stands for the row after the last one, as a row may be anything else.
_NO_ROW: Final = object()


class Reader(BaseReader):
    """An iterator of named tuples that is a context manager.

    :func:`~data_stack_petastorm.reader.make.make_reader` and
    :func:`~data_stack_petastorm.reader.make.make_batch_reader` return it. It runs for
    ``num_epochs`` epochs; :meth:`reset` restarts it. After ``break``, the next loop continues;
    after an error the reader tries the same row again. Workers run from the first row to the last,
    or to the end of the ``with`` block. Threads may share a reader; each row goes to one of them.

    Args:
        dataset: the dataset.
        iterator: the rows or n-grams of the dataset.
        block_lengths: number of samples of ``iterator`` in each row group, shape
            ``(n_row_groups,)``.
        fields: the fields of the rows, in their order.
        ngram: the n-gram; None for rows.
        batched: whether a tuple has the columns of a row group.
        of_groups: for ``batched``: the untransformed rows, and the function that transforms the
            columns of a whole row group of them. None: the reader returns the rows of ``iterator``.
        shuffling: whether to shuffle row groups, whether to shuffle rows, and the number of row
            groups to mix.
        options: options of the loader: seed, epochs, shard, uneven, workers, worker_kind, prefetch.
            If ``uneven`` is None, the reader returns each row once, and shards of its
            :meth:`loader` make equally many steps.
        fills_nulls: whether loaders read floats without a value as NaN.
        drops_rows: whether the function of ``of_groups`` drops rows, so that :meth:`loader` cannot
            batch them.
        has_own_seed: whether the user passed the seed. Then other ranks may have other seeds.
        reported: arguments that :attr:`diagnostics` contains unchanged.

    Attributes:
        dataset: as given.
        iterator: as given.
        fields: as given.
        ngram: as given.
        schema: the :class:`~data_stack_petastorm.unischema.Unischema` of the rows.
        num_epochs: number of epochs; None: endless.
        seed: the seed of all orders.
        batched_output: whether a tuple has the columns of a row group.
        is_batched_reader: the same as ``batched_output``, under Petastorm's other name.
        fills_nulls: as given.
        drops_rows: as given.
        has_own_seed: as given.
        last_row_consumed: whether the last row of the last epoch was returned.
        stopped: whether the reader was stopped.
    """

    dataset: ParquetDataset
    iterator: Any
    fields: Schema
    ngram: NGram | None
    schema: Unischema
    num_epochs: int | None
    seed: int
    batched_output: bool
    is_batched_reader: bool
    fills_nulls: bool
    drops_rows: bool
    has_own_seed: bool
    last_row_consumed: bool
    stopped: bool

    #: The arguments of all loaders of this reader, except ``uneven``.
    _loader_options: dict[str, Any]
    #: What happens to rows that the number of shards does not divide, "pad", "drop" or "keep";
    #: None: the reader keeps them, and its loaders pad.
    _uneven: Uneven | None
    _n_shards: int
    _shuffling: Shuffling
    #: Number of samples of each row group that has any, shape ``(n_row_groups,)``.
    _block_lengths: npt.NDArray[Any]
    #: For a reader of row groups: the untransformed rows, and the function that transforms the
    #: columns of a whole row group of them. None: the rows of ``iterator`` are returned.
    _row_group_rows: tuple[Any, Callable[..., Any]] | None
    _reported: dict[str, Any]
    #: Makes the tuples that the reader returns.
    _row_maker: RowMaker | NGramMaker
    #: Makes the chunks or row groups that the reader iterates over.
    _loader: Loader
    #: One thread at a time takes a row.
    _lock: threading.RLock
    #: The iteration of ``_loader``; None before the first batch and after the last one.
    _batches: Iterator[Any] | None
    #: The rows of the current batch that were not read yet.
    _rows: Iterator[Any]

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
        # What the rows are.
        self.dataset = dataset
        self.iterator = iterator
        self.fields = fields
        self.ngram = ngram
        self.schema = as_unischema(fields)
        self.batched_output = batched
        self.is_batched_reader = batched
        self.fills_nulls = fills_nulls
        self.drops_rows = drops_rows
        self._block_lengths = block_lengths[block_lengths > 0]
        self._row_group_rows = of_groups
        if ngram is None:
            self._row_maker = RowMaker(self.schema)
        else:
            self._row_maker = NGramMaker(self.schema, ngram)

        # In which order the rows are read, and which shard reads them.
        self.num_epochs = options["epochs"]
        self.seed = options["seed"]
        self.has_own_seed = has_own_seed
        self._loader_options = dict(options)
        self._uneven = self._loader_options.pop("uneven")
        self._n_shards = options["shard"][1]
        self._shuffling = Shuffling(*shuffling)
        self._reported = dict(reported or {})
        if batched:
            self._loader = self._make_row_group_loader()
        else:
            n_rows_per_sample = 1 if ngram is None else len(ngram.fields)
            chunk_size = choose_chunk_size(fields, n_rows_per_sample)
            self._loader = self.loader(chunk_size, uneven=self._uneven or "keep")

        # What changes while the rows are read.
        self.last_row_consumed = False
        self.stopped = False
        self._lock = threading.RLock()
        self._batches = None
        self._rows = iter(())

        if self._loader.plan.n_samples == 0:
            warn_program(
                f"No matching data is available for loading: {dataset!r:.200} is empty, or no row "
                "is selected",
                package=__package__,
            )
        if not batched:
            self._refuse_empty_shards()

    # ------------------------------------------------------------------ iteration

    def __next__(self) -> Any:
        """Return the next row, n-gram or row group.

        Raises:
            StopIteration: all epochs are over; :meth:`reset` restarts the reader.
            NoDataAvailableError: there are fewer row groups than shards.
            RuntimeError: the reader was stopped.
            LoadingError: a row could not be read; the message names it. The next call tries again.
            WorkerError: a worker died.
        """
        with self._lock:
            row = next(self._rows, _NO_ROW)
            while row is _NO_ROW:
                self._rows = self._next_rows()
                row = next(self._rows, _NO_ROW)
            return row

    def __len__(self) -> int:
        """Return the number of rows (or n-grams, or row groups) of the shard in all epochs.

        Raises:
            TypeError: the reader is endless.
        """
        if self.num_epochs is None:
            raise TypeError("an endless reader has no length")
        return self._loader.plan.n_batch_samples() * self.num_epochs

    def reset(self) -> None:
        """Restart with the next epoch, after the last row, an error or :meth:`stop`.

        Raises:
            NotImplementedError: rows were read, but not the last one. Call :meth:`stop` first to
                skip the rest.
        """
        is_in_the_middle = self._batches is not None and not self.stopped
        if is_in_the_middle:
            raise NotImplementedError(
                "cannot reset a reader in the middle of its rows: read all of them first, or call "
                "stop() to skip the rest"
            )
        self.restart()

    def restart(self) -> None:
        """Restart with the next epoch, also in the middle of an epoch.

        Rows of the current epoch that were not read yet are skipped.
        """
        self._forget_rows()
        self.last_row_consumed = False
        self.stopped = False

    def stop(self) -> None:
        """End the workers and skip the remaining rows; :meth:`reset` restarts the reader."""
        self.stopped = True
        self._forget_rows()
        self._loader.close()

    def __enter__(self) -> Reader:
        """Return the reader; restart it if it was stopped."""
        if self.stopped:
            self.reset()
        return self

    def _next_rows(self) -> Iterator[Any]:
        """Return the tuples of the loader's next batch, which may be none.

        Raises:
            StopIteration: the loader has no more batches.
        """
        batch = self._next_batch()
        n_rows = count_rows(batch)
        if not self.batched_output:
            return self._row_maker.make_rows(batch, n_rows)
        if n_rows == 0 and self._row_group_rows is not None:
            # The transform dropped all rows of the row group.
            return iter(())
        return iter([self._row_maker.make_batch(batch)])

    def _next_batch(self) -> Any:
        """Return the loader's next batch.

        Raises:
            StopIteration: the loader has no more batches.
            RuntimeError: the reader was stopped.
        """
        if self.stopped:
            raise RuntimeError(
                "Trying to read a sample of a stopped reader; it stops at the end of its with "
                "block. Call reset(), or enter another with block"
            )
        if self.last_row_consumed:
            raise StopIteration
        if self._batches is None:
            self._refuse_empty_shards()
            self._batches = iter(self._loader)
        place_of_batch = self._loader.tell()
        try:
            return next(self._batches)
        except StopIteration:
            self._batches = None
            self.last_row_consumed = True
            raise
        except BaseException:
            # The next call begins another iteration, which tries this batch again.
            self._batches = None
            self._loader.seek(*place_of_batch)
            raise

    def _forget_rows(self) -> None:
        """End the current iteration of the loader, and skip the rows that were not read yet."""
        self._batches = None
        self._rows = iter(())

    def _refuse_empty_shards(self) -> None:
        """Refuse shards without rows, or without row groups if the reader returns row groups.

        A reader of row groups calls this only before it returns the first one: its DataLoaders
        divide the rows, of which there may be enough.

        Raises:
            NoDataAvailableError: there are more shards than rows or row groups.
        """
        plan = self._loader.plan
        has_empty_shards = 0 < plan.n_samples < plan.world
        if not has_empty_shards or self._uneven == "keep":
            return
        what = "row groups" if self.batched_output else "rows"
        raise NoDataAvailableError(
            f"Number of row-groups in the dataset: {len(self._block_lengths)}. "
            f"There are fewer {what} ({plan.n_samples}) than shards ({plan.world}) in "
            f"{self.dataset!r:.200}. Use fewer shards, shard rows with make_reader or a "
            "DataLoader, or allow empty shards with uneven='keep'"
        )

    # ------------------------------------------------------------------ figures

    @property
    def diagnostics(self) -> dict[str, Any]:
        """The loader's counts and times.

        They are also under Petastorm's names, which do not count prefetched batches.
        """
        statistics = self._loader.stats()
        diagnostics = asdict(statistics)
        diagnostics["output_queue_size"] = 0
        diagnostics["items_consumed"] = statistics.n_batches
        diagnostics["items_produced"] = statistics.n_batches
        diagnostics["items_inprocess"] = 0
        diagnostics.update(self._reported)
        return diagnostics

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
        """Make a loader of batches of rows (or n-grams), with this reader's order and arguments.

        Args:
            batch_size: rows of a batch.
            shuffling_queue_capacity: minimum number of rows to shuffle together, rounded up to
                whole row groups.
            drop_last: whether to drop the last batch of an epoch if it is shorter.
            collate: makes a batch, as for :class:`~data_stack.loader.loader.Loader`. The loader
                does not fill nulls then.
            transform: changes a batch of columns, as for :class:`~data_stack.loader.loader.Loader`.
            sharding: the sharding of the state that the loader will load, see
                :meth:`Sharding.of_state`; None: the reader's own.
            uneven: as for :class:`~data_stack.loader.loader.Loader`; None: that of the reader, or
                "pad".
            options: other arguments of :class:`~data_stack.loader.loader.Loader`, such as
                ``timeout_seconds``; they override those of the reader.

        Raises:
            ConfigError: an argument is out of range.
        """
        uneven = uneven or self._uneven or "pad"
        if sharding is None:
            sharding = Sharding(self._n_shards, batch_size, uneven)
        shuffling = self._shuffling.with_capacity(shuffling_queue_capacity, self._block_lengths)
        order = self._make_order(self._block_lengths, sharding, shuffling.make_order)

        if self.fills_nulls and collate is None:
            nan_for_null = NanForNull(self.fields, transform)
            # It is false if no field can have missing floats: nothing is to be filled then.
            if nan_for_null:
                transform = nan_for_null

        loader_options = dict(self._loader_options)
        loader_options["uneven"] = uneven
        loader_options.update(options)
        return Loader(
            self.iterator,
            batch_size,
            shuffle=order,
            drop_last=drop_last,
            collate=collate,
            transform=transform,
            **loader_options,
        )

    def _make_row_group_loader(self) -> Loader:
        """Make a loader of the columns of one row group, or of a part of one, at a time."""
        if self._row_group_rows is None:
            rows = self.iterator
            row_group_transform = None
        else:
            rows, row_group_transform = self._row_group_rows
        shuffling = self._shuffling
        part_lengths, n_parts_of_row_groups = parts_of_row_groups(
            self._block_lengths, shuffling.n_mixed
        )
        parts = RowGroups(rows, part_lengths, row_group_transform)

        # The samples of this loader are the parts, and the blocks of its order are the row groups.
        # So the order shuffles parts where Shuffling says "rows".
        uneven: Uneven = self._uneven or "keep"
        sharding = Sharding(self._n_shards, 1, uneven)
        shuffling_of_parts = shuffling._replace(rows=shuffling.row_groups)
        order = self._make_order(n_parts_of_row_groups, sharding, shuffling_of_parts.make_order)

        # The rows within a part are shuffled by the loader's transform.
        transform = permute_rows if shuffling.rows else None
        return Loader(
            parts,
            1,
            shuffle=order,
            collate=take_only_batch,
            transform=transform,
            uneven=uneven,
            **self._loader_options,
        )

    def _make_order(
        self, block_lengths: npt.NDArray[Any], sharding: Sharding, make_order: OrderMaker
    ) -> Order:
        """Return the order of a loader's samples.

        Args:
            block_lengths: number of samples of each block, shape ``(n_blocks,)``.
            sharding: how to divide the samples among shards.
            make_order: makes the order within a shard.
        """
        if sharding.n_shards == 1:
            return make_order(block_lengths)
        reshuffles = self._shuffling.row_groups
        return Shards(block_lengths, sharding, make_order, reshuffles=reshuffles)
