"""``make_reader`` and ``make_batch_reader``: rows and row groups of a Parquet dataset as named tuples."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from data_stack.dataset.iterator.iterator import checked_integer
from data_stack.exception import ConfigError, LoaderStateError, MissingDependencyError
from data_stack.formats.parquet.dataset import ParquetDataset
from data_stack.formats.parquet.ngram import NGram, NGramIterator
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.selecting import as_predicate
from data_stack.formats.parquet.selecting.on_frames import on_frames
from data_stack.formats.parquet.transform import TransformSpec
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader.blocks import block_lengths
from data_stack.loader.lanes import Lanes
from data_stack.loader.loader import Loader
from data_stack.loader.orders import BlockShuffled, InOrder, Order
from data_stack.loader.petastorm.arguments import shard_of, worker_kind_of
from data_stack.loader.petastorm.row_group_batches import RowGroupBatches, parts_of_blocks
from data_stack.loader.petastorm.rows import batch_as_tuples, rows_of
from data_stack.loader.plan import Uneven

__all__ = ["Reader", "lanes_of", "make_batch_reader", "make_reader"]

_STATE: Final = "data_stack_reader"
#: Rows that are read together: as many as have so many bytes, within limits.
_CHUNK_BYTES, _LARGEST_CHUNK = 4 << 20, 512
#: What a size that differs from value to value is taken to be.
_USUAL_EXTENT = 64
_END: Final = object()


def make_reader(
    dataset_url: Any,
    schema_fields: Any = None,
    reader_pool_type: str = "thread",
    workers_count: int = 10,
    pyarrow_serialize: bool = False,
    results_queue_size: int = 50,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_row_drop_partitions: int = 1,
    predicate: Any = None,
    rowgroup_selector: Any = None,
    num_epochs: int | None = 1,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    shard_seed: int | None = None,
    cache_type: str | None = "null",
    cache_location: Any = None,
    cache_size_limit: int | None = None,
    cache_row_size_estimate: int | None = None,
    cache_extra_settings: Mapping[str, Any] | None = None,
    hdfs_driver: str = "libhdfs3",
    transform_spec: TransformSpec | None = None,
    filters: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    zmq_copy_buffers: bool = True,
    filesystem: Any = None,
    convert_early_to_numpy: bool = False,
    *,
    uneven: Uneven = "pad",
) -> Reader:
    """Rows of a Parquet dataset, one named tuple each, with decoded values in the order of the fields.

    ::

        with make_reader("file:///data/frames", schema_fields=["id", "image"], seed=7, num_epochs=10) as reader:
            for row in reader:
                row.id, row.image

    The arguments are Petastorm's, in its order and with its defaults; what changed is told in ``docs/from_petastorm.md``.

    Args:
        dataset_url: folder, file or list of files: a path, a URL (``file://``, ``s3://``, ``hdfs://``, ``mongodb://`` …), a
            storage connector, or resources of a dataset. Any Parquet will do.
        schema_fields: names, regular expressions of whole names, or fields; or an
            :class:`~data_stack.formats.parquet.ngram.NGram` for sequences ``{offset: named tuple}``. None for all.
        reader_pool_type: "thread", "process" or "dummy" (none).
        workers_count: how many.
        seed: any integer, 0 too, decides all orders, for whichever pool and number of workers. None: another order at each start,
            but for shards, which must agree: these have 0 then.
        shuffle_rows: rows of each row group in a random order.
        shuffle_row_groups: row groups in a random order, another one in each epoch.
        shuffle_row_drop_partitions: k > 1 mixes the rows of k random row groups with each other. Each is read once.
        predicate: which rows: one of :mod:`data_stack.formats.parquet.selecting`, or any object with ``get_fields()`` and
            ``do_include(values)``. Its fields need not be among ``schema_fields``.
        rowgroup_selector: of row groups by an index.
        num_epochs: how often all rows are given; None: without an end.
        cur_shard: which of the shards this reader gives.
        shard_count: how many there are. All have equally many rows, see ``uneven``.
        shard_seed: as ``seed``, where that is None.
        cache_type: "null", or "local-disk" to keep what is read of a remote store under ``cache_location``, by its content. Files
            of this machine are not copied. Nobody else's files are touched, and what was kept stays there for the next reader.
        cache_location: a folder.
        cache_size_limit: bytes that it may take; None for no limit.
        transform_spec: what is made of each row.
        filters: of pyarrow: ``[("speed", ">", 3)]`` or an expression; all of it has an effect on rows.
        storage_options: for fsspec, with which the URL is opened then.
        filesystem: of pyarrow or fsspec, in which ``dataset_url`` is a path.
        uneven: what becomes of rows that ``shard_count`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad",
            "drop" or "keep".
        pyarrow_serialize: has no effect, like all that follow.
        results_queue_size: none; the loader keeps a chunk or two for each worker.
        cache_row_size_estimate: none.
        cache_extra_settings: none.
        hdfs_driver: none; pyarrow has one.
        zmq_copy_buffers: none; processes hand over shared memory.
        convert_early_to_numpy: none; workers decode.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        DatasetFileCorruptError: a footer is damaged, or files differ in their columns.
        ConfigError: an argument is out of range, or there is no such field.
    """
    return _made_reader(dict(locals()), batched=False)


def make_batch_reader(
    dataset_url_or_urls: Any,
    schema_fields: Any = None,
    reader_pool_type: str = "thread",
    workers_count: int = 10,
    results_queue_size: int = 50,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_row_drop_partitions: int = 1,
    predicate: Any = None,
    rowgroup_selector: Any = None,
    num_epochs: int | None = 1,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    shard_seed: int | None = None,
    cache_type: str | None = "null",
    cache_location: Any = None,
    cache_size_limit: int | None = None,
    cache_row_size_estimate: int | None = None,
    cache_extra_settings: Mapping[str, Any] | None = None,
    hdfs_driver: str = "libhdfs3",
    transform_spec: TransformSpec | None = None,
    filters: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    zmq_copy_buffers: bool = True,
    filesystem: Any = None,
    convert_early_to_numpy: bool = False,
    *,
    uneven: Uneven = "pad",
) -> Reader:
    """Row groups of a Parquet dataset, one named tuple of arrays each; values are decoded, nulls exact.

    Arguments as for :func:`make_reader`, except:

    * ``transform_spec`` is of DataFrames, unless it says another ``on``; as many rows come out as go in.
    * The function of a ``predicate`` may be one of columns: of a DataFrame in ``do_include``, of Series in ``in_lambda``.
    * ``shuffle_row_drop_partitions`` of k > 1 cuts each row group into k parts, each a tuple of its own; the parts of k row
      groups are mixed.
    * Shards have equally many *row groups*, and so not equally many rows. A
      :class:`~data_stack.loader.petastorm.torch.DataLoader` of the reader divides the rows themselves.

    Raises:
        ResourceNotFoundError, DatasetFileCorruptError, ConfigError: as :func:`make_reader`.
    """
    return _made_reader(dict(locals()), batched=True)


class Reader:
    """What :func:`make_reader` and :func:`make_batch_reader` give: an iterator of named tuples, and a context manager.

    It gives ``num_epochs`` epochs, then ends. A loop that is broken off goes on with the next loop; after an error the same row
    is asked for again; :meth:`reset` begins anew, at any time. Workers run from the first row to the last, or to the end of
    the ``with`` block. Several threads may take rows of one reader; each row goes to one of them.

    Args:
        dataset: what is read.
        iterator: the stack on it: rows, or n-grams.
        schema_name: for the names of the tuples.
        schema: the fields that come out.
        ngram: the n-gram; None for rows.
        batched: whether a tuple has the columns of a row group.
        shuffling: row groups, rows, and of how many row groups the rows are mixed.
        options: of the loader: seed, epochs, shard, uneven, workers, worker_kind, prefetch.
    """

    def __init__(
        self,
        dataset: ParquetDataset,
        iterator: Any,
        *,
        schema: Schema,
        ngram: NGram | None,
        batched: bool,
        shuffling: tuple[bool, bool, int],
        options: Mapping[str, Any],
    ) -> None:
        self.dataset, self.iterator, self.schema, self.ngram = dataset, iterator, schema, ngram
        self.num_epochs: int | None = options["epochs"]
        self.batched_output = self.is_batched_reader = batched
        self.last_row_consumed = self.stopped = False
        self._options, self._shuffling = dict(options), shuffling
        self._steps = () if ngram is None else tuple(range(min(ngram.fields), max(ngram.fields) + 1))
        self._n_chunk = 1 if batched else self._rows_at_once()
        self._loader = self._batch_loader() if batched else self.loader(self._n_chunk)
        self._lock = threading.RLock()
        self._chunks: Iterator[Any] | None = None
        self._rows: Iterator[Any] = iter(())
        self._n_given = self._n_of_chunk = 0  # rows of the chunk that came last, and how many it has
        self._n_to_skip = 0
        self._before: tuple[int, int, int] | None = None  # where the loader was before that chunk

    # ------------------------------------------------------------------ iteration

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        """The next row, n-gram or row group.

        Raises:
            StopIteration: all epochs are over; :meth:`reset` begins anew.
            RuntimeError: the reader was stopped.
            LoadingError: a row could not be read; the message names it. Asked again, the reader tries again.
            WorkerError: a worker died.
        """
        with self._lock:
            row = next(self._rows, _END)
            while row is _END:
                self._rows = self._next_rows()
                row = next(self._rows, _END)
            self._n_given += 1
            return row

    def next(self) -> Any:
        """The next row, as ``next(reader)``."""
        return self.__next__()

    def __len__(self) -> int:
        """How many rows (or n-grams, or row groups) this reader gives in all its epochs, those of its shard.

        Raises:
            TypeError: it never ends.
        """
        if self.num_epochs is None:
            raise TypeError("this reader has no length: it never ends")
        return self._loader._plan.n_batch_samples() * self.num_epochs

    def reset(self) -> None:
        """Begin anew with the next epoch, wherever the reader is, also after an error or :meth:`stop`."""
        self._loader._end_iteration()
        self._forget()
        self.last_row_consumed = self.stopped = False

    def stop(self) -> None:
        """End the workers. There are no more rows until :meth:`reset`."""
        self.stopped = True
        self._forget()
        self._loader.close()

    def join(self) -> None:
        """Nothing is left to wait for: :meth:`stop` returns when the workers have ended."""

    def cleanup_cache(self) -> None:
        """Nothing is deleted: what a cache keeps is known by its content, and bounded by its limit."""

    def __enter__(self) -> Reader:
        if self.stopped:
            self.reset()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _next_rows(self) -> Iterator[Any]:
        """The rows of the next chunk."""
        if self.stopped:
            raise RuntimeError(
                "this reader was stopped, as it is at the end of its with block; reset() begins anew, and so does another block"
            )
        if self.last_row_consumed:
            raise StopIteration
        if self._chunks is None:
            self._chunks = iter(self._loader)
            place = self._loader._place
            # of an iteration that has not begun: where it will
            self._before = (place.next_epoch, place.position if place.goes_on else 0, place.next_first_epoch)
        elif self._loader._iteration is not None:
            place = self._loader._place
            self._before = place.epoch, place.position, place.first_epoch
        try:
            batch = next(self._chunks)
        except StopIteration:
            self._chunks, self._before, self.last_row_consumed = None, None, True
            raise
        except BaseException:
            # tried again, if it is asked for again
            self._chunks = None
            if self._before is not None:
                self._loader._place.go_to(*self._before)
            raise
        self._n_given, self._n_of_chunk = 0, 1 if self.batched_output else _n_rows(batch)
        names = {"is_ngram": self.ngram is not None, "steps": self._steps}
        if self.batched_output:
            rows: Iterator[Any] = iter([batch_as_tuples(batch, self.schema.name, **names)])  # type: ignore[arg-type]  # names
        else:
            rows = rows_of(batch, self.schema.name, **names)  # type: ignore[arg-type]  # likewise
        while self._n_to_skip:
            self._n_to_skip -= 1
            self._n_given += 1
            next(rows, None)
        return rows

    def _forget(self) -> None:
        self._chunks, self._rows, self._before = None, iter(()), None
        self._n_given = self._n_of_chunk = self._n_to_skip = 0

    # ------------------------------------------------------------------ state, figures

    def state_dict(self) -> dict[str, Any]:
        """Where the reader is: plain JSON data from which another reader of the same rows goes on behind the last row given.

        Behind the last row of the last epoch there are no more until :meth:`reset`.
        """
        state = self._loader.state_dict()
        n_given = self._n_given + self._n_to_skip
        # Behind the last batch a loader is where its next iteration begins.
        is_begun = state["position"] != 0 or state["epoch"] != state["first_epoch"]
        is_over = self.last_row_consumed or (0 < n_given == self._n_of_chunk and not is_begun)
        if n_given == self._n_of_chunk:  # the loader is behind them
            n_given = 0
        elif self._before is not None:
            state.update(zip(("epoch", "position", "first_epoch"), self._before, strict=True))
        return {
            _STATE: 1,
            "loader": state,
            "rows": n_given,
            "chunk": self._n_chunk,
            "shards": self._options["shard"][1],
            "is_over": is_over,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken, with any pool and number of workers.

        On another number of shards that is possible where a chunk of rows ends (:attr:`rows_at_once`), and for every batch of a
        :class:`~data_stack.loader.petastorm.torch.DataLoader`.

        Raises:
            LoaderStateError: the state is of other rows or another order, or no state; the reader stays as it was.
        """
        given: Any = state
        if not isinstance(given, Mapping) or given.get(_STATE) != 1:
            raise LoaderStateError(f"this is not the state of a reader: {state!r:.120}; state_dict() gives one")
        n_given, chunk, shards = state.get("rows"), state.get("chunk"), state.get("shards")
        if not isinstance(n_given, int) or not isinstance(chunk, int) or not isinstance(shards, int) or n_given < 0:
            raise LoaderStateError(f"this state of a reader is damaged: {state!r:.120}")
        if 0 < n_given < chunk and (chunk, shards) != (self._n_chunk, self._options["shard"][1]):
            raise LoaderStateError(
                f"this state was taken in the middle of a chunk: {n_given} of {chunk} rows, of each of {shards} shards. "
                f"Go on with as many shards, or save where the number of rows given is a multiple of reader.rows_at_once, or "
                f"save the state of a DataLoader, which goes on with any number"
            )
        loader = self._loader if self.batched_output else self.loader(self._n_chunk, lanes=lanes_of(state.get("loader")))
        loader.load_state_dict(state.get("loader", {}))
        if loader is not self._loader:
            self._loader.close()
            self._loader = loader
        self._forget()
        self.last_row_consumed, self.stopped = state.get("is_over") is True, False
        self._n_to_skip = n_given

    @property
    def rows_at_once(self) -> int:
        """How many rows (n-grams, row groups) are read together."""
        return self._n_chunk

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What the loader did, and how long was waited for it."""
        return asdict(self._loader.stats())

    @property
    def epoch(self) -> int:
        """Of the row that was given last; before the first one, of that."""
        return self._loader.epoch if self._before is None else self._before[0]

    def __repr__(self) -> str:
        what = "row groups" if self.batched_output else "rows" if self.ngram is None else "n-grams"
        return f"<Reader: {what} of {self.iterator!r}, {', '.join(self.schema.fields)}>"

    # ------------------------------------------------------------------ loaders

    def loader(
        self,
        batch_size: int,
        *,
        shuffling_queue_capacity: int = 0,
        drop_last: bool = False,
        collate: Any = None,
        transform: Callable[..., Any] | None = None,
        lanes: tuple[int, int] | None = None,
    ) -> Loader:
        """A loader of the rows (or n-grams) of this reader, in batches: same order, shard, epochs and workers.

        Args:
            batch_size: rows of a batch.
            shuffling_queue_capacity: so many rows at least are mixed with each other: those of as many row groups as have them.
            drop_last: whether the last batch of an epoch is left out if it is shorter.
            collate: as for :class:`~data_stack.loader.loader.Loader`.
            transform: likewise.
            lanes: ``(shards, batch_size)`` of the loader whose state shall be loaded, see :func:`lanes_of`; None: its own.
                Each shard reads row groups of its own (:class:`~data_stack.loader.lanes.Lanes`).
        """
        shuffle_row_groups, shuffle_rows, n_mixed = self._shuffling
        lengths = block_lengths(self.iterator)
        n_rows = checked_integer("shuffling_queue_capacity", shuffling_queue_capacity, at_least=0)
        if n_rows > 1 and len(lengths):
            n_mixed, shuffle_rows = max(n_mixed, math.ceil(n_rows / float(lengths.mean()))), True
        order: Order = InOrder()
        if shuffle_rows or n_mixed > 1:
            order = BlockShuffled(lengths, window=n_mixed, blocks=shuffle_row_groups)
        elif shuffle_row_groups:
            order = BlockShuffled(lengths, window=1, samples=False)
        n_lanes, batch_size_of_lanes = (self._options["shard"][1], batch_size) if lanes is None else lanes
        if n_lanes > 1:
            order = Lanes(order, n_lanes, batch_size_of_lanes)
        return Loader(
            self.iterator, batch_size, shuffle=order, drop_last=drop_last, collate=collate, transform=transform, **self._options
        )

    def _batch_loader(self) -> Loader:
        """A loader that gives the columns of a row group, or of a part of one, at a time."""
        shuffle_row_groups, shuffle_rows, n_mixed = self._shuffling
        lengths, n_of_each = parts_of_blocks(block_lengths(self.iterator), n_mixed)
        batches = RowGroupBatches(self.iterator, lengths, seed=self._options["seed"] if shuffle_rows else None)
        order: bool | Order = BlockShuffled(n_of_each, window=n_mixed) if shuffle_row_groups else False
        return Loader(batches, 1, shuffle=order, collate=_the_one, **self._options)

    def _rows_at_once(self) -> int:
        n_bytes = 0
        n_steps = 1 if self.ngram is None else len(self.ngram.fields)
        for field in self.schema:
            item = field.dtype.itemsize if isinstance(field.dtype, np.dtype) else 16
            n_bytes += max(item, 8) * math.prod(_USUAL_EXTENT if size is None else size for size in field.shape)
        return min(max(_CHUNK_BYTES // max(1, n_bytes * n_steps), 1), _LARGEST_CHUNK)


def _n_rows(batch: Mapping[Any, Any]) -> int:
    """Of columns, nested or not."""
    for column in batch.values():
        if not isinstance(column, dict):
            return len(column)
        if column:
            return _n_rows(column)
    return 0


def lanes_of(state: Any) -> tuple[int, int]:
    """Shards and batch size of the loader that a state is of, for :meth:`Reader.loader`; ``(1, 1)`` of a single one."""
    order = state.get("order") if isinstance(state, Mapping) else None
    if not isinstance(order, Mapping) or order.get("order") != "lanes":
        return 1, 1
    return checked_integer("lanes", order.get("lanes"), at_least=1), checked_integer(
        "batch_size", order.get("batch_size"), at_least=1
    )


def _the_one(batches: list[Any]) -> Any:
    return batches[0]


# ---------------------------------------------------------------------- arguments


def _made_reader(given: dict[str, Any], *, batched: bool) -> Reader:
    """The reader that was asked for by the arguments of one of the two functions."""
    source = given["dataset_url_or_urls"] if batched else given["dataset_url"]
    schema_fields, spec = given["schema_fields"], given["transform_spec"]
    source, filesystem = _opened(source, given)
    predicates = [as_predicate(each) for each in (given["predicate"], given["filters"]) if each is not None]
    if batched and given["predicate"] is not None:
        predicates[0] = on_frames(predicates[0])
    options = {
        "filters": None if not predicates else predicates[0] if len(predicates) == 1 else predicates[0] & predicates[1],
        "row_groups": given["rowgroup_selector"],
        "filesystem": filesystem,
    }
    ngram = schema_fields if isinstance(schema_fields, NGram) else None
    columns = None if ngram is not None or schema_fields is None else [_column(each) for each in _listed(schema_fields)]
    dataset = ParquetDataset(source, columns, **options)
    if ngram is not None and spec is not None:  # it is given what is wanted of any row
        columns = _columns_of(ngram, list(dataset.schema.fields))
        dataset = dataset if columns is None else ParquetDataset(source, columns, **options)

    seed = given["shard_seed"] if given["seed"] is None else given["seed"]
    shard = shard_of(given["cur_shard"], given["shard_count"])
    if seed is None:
        seed = secrets.randbits(63) if shard[1] == 1 else 0
    seed = checked_integer("seed", seed)
    iterator: Any = dataset
    schema = dataset.schema
    if spec is not None:
        if not isinstance(spec, TransformSpec):
            raise ConfigError(f"transform_spec is a TransformSpec, not {spec!r:.80}")
        if spec.on is None and batched:
            spec = TransformSpec(spec.func, spec.edit_fields, spec.removed_fields or None, spec.selected_fields, on="pandas")
        iterator = TransformedDatasetIterator(dataset, spec, seed=seed)
        schema = iterator.schema
    if ngram is not None:
        iterator = NGramIterator(iterator, ngram)
        ngram = iterator.ngram
        schema = schema.view(ngram.get_field_names_at_all_timesteps())
    kind = given["reader_pool_type"]
    worker_kind = worker_kind_of(kind)
    n_workers = checked_integer("workers_count", given["workers_count"], at_least=1)
    n_mixed = checked_integer("shuffle_row_drop_partitions", given["shuffle_row_drop_partitions"], at_least=1)
    shuffles_row_groups = bool(given["shuffle_row_groups"])
    return Reader(
        dataset,
        iterator,
        schema=schema,
        ngram=ngram,
        batched=batched,
        shuffling=(shuffles_row_groups, bool(given["shuffle_rows"]), n_mixed if shuffles_row_groups else 1),
        options={
            "seed": seed,
            "epochs": given["num_epochs"],
            "shard": shard,
            "uneven": given["uneven"],
            "workers": None if kind == "dummy" else n_workers,
            "worker_kind": worker_kind,
            "prefetch": 2 if n_workers <= 4 else 1,
        },
    )


def _opened(source: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where the files are, and the file system that ``source`` is a path in, if it is one."""
    cache_type, filesystem, options = given["cache_type"], given["filesystem"], given["storage_options"]
    if cache_type not in (None, "null", "local-disk"):
        raise ConfigError(f"cache_type is 'null' or 'local-disk', not {cache_type!r:.40}")
    is_url = isinstance(source, str) and "://" in source
    scheme = urlsplit(source).scheme.lower() if is_url else ""
    if filesystem is None and options and is_url and scheme != "file":
        try:
            import fsspec
        except ImportError as error:
            raise MissingDependencyError("storage_options", "fsspec", "cloud") from error
        filesystem = fsspec.filesystem(scheme, **options)
    if cache_type == "local-disk":
        if given["cache_location"] is None:
            raise ConfigError("cache_type='local-disk' needs a folder to keep things in: cache_location=")
        if filesystem is None and is_url and scheme not in ("file", "hdfs", "viewfs"):
            source = CachedStorageConnector(
                storage_connector_from_url(source), given["cache_location"], given["cache_size_limit"]
            )
        elif filesystem is not None or scheme in ("hdfs", "viewfs"):
            raise ConfigError(
                "cache_type='local-disk' keeps what is read of a storage connector (s3://, mongodb://, …); of a file system of "
                "fsspec or pyarrow it keeps nothing: leave it out, or give the URL alone"
            )
    return source, filesystem


def _listed(schema_fields: Any) -> list[Any]:
    if isinstance(schema_fields, (str, Mapping)) or not isinstance(schema_fields, Iterable):
        raise ConfigError(
            f"schema_fields is a list of names, regular expressions or fields, or an NGram, not {schema_fields!r:.80}"
        )
    return list(schema_fields)


def _column(choice: Any) -> Any:
    """A name or pattern; of a field, whosever it is, its name."""
    return getattr(choice, "name", choice)


def _columns_of(ngram: NGram, names: Sequence[str]) -> list[str] | None:
    """The fields that an n-gram names; None if it names some that the transform makes."""
    try:
        resolved = ngram.resolved(names)
    except ConfigError:
        return None
    others = [resolved.timestamp_field] + ([] if resolved.group_field is None else [resolved.group_field])
    return list(dict.fromkeys([*resolved.get_field_names_at_all_timesteps(), *others]))
