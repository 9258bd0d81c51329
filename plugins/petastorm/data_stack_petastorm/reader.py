"""``make_reader`` and ``make_batch_reader``: their arguments, and the reader that they ask for."""

from __future__ import annotations

import numbers
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.dataset.iterator.indices import check_integer
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet import NGram, NGramIterator, ParquetDataset, TransformSpec
from data_stack.formats.parquet.selecting import as_predicate, in_reduce
from data_stack.formats.parquet.selecting.petastorm_predicates import on_frames
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.io.storage_connectors import CachedStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader.plan import Uneven
from data_stack.util.processors import n_processors
from data_stack_petastorm.iteration import Reader

__all__ = ["Reader", "ReaderArguments", "make_batch_reader", "make_reader"]

_MOST_WORKERS_PER_PROCESSOR = 2
_KINDS: Final = {"thread": "threads", "process": "processes", "dummy": "inline"}


@dataclass(frozen=True)
class ReaderArguments:
    """What :func:`make_reader` and :func:`make_batch_reader` take: Petastorm's arguments, in its order and with its defaults.

    Attributes:
        source: folder, file or list of files: a path, a URL (``file://``, ``s3://``, ``hdfs://``, ``mongodb://`` …), a
            storage connector, or resources of a dataset. Any Parquet will do.
        schema_fields: names, regular expressions of whole names, or fields; or an
            :class:`~data_stack.formats.parquet.ngram.NGram` for sequences ``{offset: named tuple}``. None for all.
        reader_pool_type: "thread", "process" or "dummy" (none).
        workers_count: how many at most. For files of this machine and without a ``transform_spec`` at most two for
            each processor: more would be in each other's way.
        seed: any integer, 0 too, decides all orders, for any pool and number of workers. None: another order at each start;
            for shards, which must agree, 0.
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
            of this machine are not copied. Other files there are not touched, and the cache stays there for the next reader.
        cache_location: a folder.
        cache_size_limit: bytes that it may take; None for no limit.
        transform_spec: what is made of each row.
        filters: of pyarrow: ``[("speed", ">", 3)]`` or an expression; all of it has an effect on rows.
        storage_options: for fsspec, with which the URL is opened then.
        filesystem: of pyarrow or fsspec, in which ``dataset_url`` is a path.
        uneven: what becomes of rows that ``shard_count`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad",
            "drop" or "keep".
        results_queue_size: has no effect, like all that follow; the loader keeps a chunk or two for each worker.
        cache_row_size_estimate: none.
        cache_extra_settings: none.
        hdfs_driver: none; pyarrow has one.
        zmq_copy_buffers: none; processes hand over shared memory.
        convert_early_to_numpy: none; workers decode.
        pyarrow_serialize: none; only :func:`make_reader` of Petastorm has it.
    """

    source: Any
    schema_fields: Any = None
    reader_pool_type: str = "thread"
    workers_count: int = 10
    results_queue_size: int = 50
    seed: int | None = None
    shuffle_rows: bool = False
    shuffle_row_groups: bool = True
    shuffle_row_drop_partitions: int = 1
    predicate: Any = None
    rowgroup_selector: Any = None
    num_epochs: int | None = 1
    cur_shard: int | None = None
    shard_count: int | None = None
    shard_seed: int | None = None
    cache_type: str | None = "null"
    cache_location: Any = None
    cache_size_limit: int | None = None
    cache_row_size_estimate: int | None = None
    cache_extra_settings: Mapping[str, Any] | None = None
    hdfs_driver: str = "libhdfs3"
    transform_spec: TransformSpec | None = None
    filters: Any = None
    storage_options: Mapping[str, Any] | None = None
    zmq_copy_buffers: bool = True
    filesystem: Any = None
    convert_early_to_numpy: bool = False
    _: KW_ONLY
    uneven: Uneven = "pad"
    pyarrow_serialize: bool = False


def make_reader(dataset_url: Any, *arguments: Any, **named: Any) -> Reader:
    """Rows of a Parquet dataset, one named tuple each, with decoded values in the order of the fields.

    ::

        with make_reader("file:///data/frames", schema_fields=["id", "image"], seed=7, num_epochs=10) as reader:
            for row in reader:
                row.id, row.image

    Args:
        dataset_url: the dataset.
        arguments: those of :class:`ReaderArguments`, which are Petastorm's; for changes see ``docs/from_petastorm.md``.
        named: likewise.

    Raises:
        TypeError: there is no such argument.
        ResourceNotFoundError: there are no Parquet files.
        DatasetFileCorruptError: a footer is damaged, or files differ in their columns.
        ConfigError: an argument is out of range, there is no such field, or there are fewer rows than shards (unless ``uneven``
            is "keep").

    Warns:
        UserWarning: no row is selected, or the dataset is empty.
    """
    return _make(ReaderArguments(dataset_url, *arguments, **named), batched=False)


def make_batch_reader(dataset_url_or_urls: Any, *arguments: Any, **named: Any) -> Reader:
    """Row groups of a Parquet dataset, one named tuple of arrays each; values are decoded, nulls exact.

    Arguments as for :func:`make_reader`, except:

    * ``transform_spec`` is of DataFrames, unless it says another ``on``; as many rows come out as go in.
    * The function of a ``predicate`` may be one of columns: of a DataFrame in ``do_include``, of Series in ``in_lambda``.
    * ``shuffle_row_drop_partitions`` of k > 1 cuts each row group into k parts, each a tuple of its own; the parts of k row
      groups are mixed.
    * Shards have equally many *row groups*, and so not equally many rows. A
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader divides the rows themselves.

    Raises:
        TypeError, ResourceNotFoundError, DatasetFileCorruptError, ConfigError: as :func:`make_reader`.
    """
    return _make(ReaderArguments(dataset_url_or_urls, *arguments, **named), batched=True)


def _make(given: ReaderArguments, *, batched: bool) -> Reader:
    """A reader for the arguments of one of the two functions."""
    dataset, ngram = _dataset(given, batched)
    shard = _shard(given.cur_shard, given.shard_count)
    seed = given.shard_seed if given.seed is None else given.seed
    if seed is None:
        seed = secrets.randbits(63) if shard[1] == 1 else 0
    iterator: Any = dataset
    if (spec := given.transform_spec) is not None:
        if spec.on is None and batched:
            spec = TransformSpec(spec.func, spec.edit_fields, spec.removed_fields or None, spec.selected_fields, on="pandas")
        iterator = TransformedDatasetIterator(dataset, spec, seed=seed)
    schema, block_lengths = iterator.schema, dataset.block_lengths
    if ngram is not None:
        iterator = NGramIterator(iterator, ngram)
        ngram, block_lengths = iterator.ngram, iterator.block_lengths
        schema = schema.view(ngram.get_field_names_at_all_timesteps())
    if given.reader_pool_type not in _KINDS:
        raise ConfigError(f"reader_pool_type is one of {', '.join(map(repr, _KINDS))}, not {given.reader_pool_type!r:.40}")
    n_workers = check_integer("workers_count", given.workers_count, at_least=1)
    if dataset.is_local and spec is None:  # nothing is waited for but processors
        n_workers = min(n_workers, _MOST_WORKERS_PER_PROCESSOR * n_processors())
    n_mixed = check_integer("shuffle_row_drop_partitions", given.shuffle_row_drop_partitions, at_least=1)
    shuffles_row_groups = bool(given.shuffle_row_groups)
    return Reader(
        dataset,
        iterator,
        block_lengths=block_lengths,
        schema=schema,
        ngram=ngram,
        batched=batched,
        shuffling=(shuffles_row_groups, bool(given.shuffle_rows), n_mixed if shuffles_row_groups else 1),
        options={
            "seed": seed,
            "epochs": given.num_epochs,
            "shard": shard,
            "uneven": given.uneven,
            "workers": None if given.reader_pool_type == "dummy" else n_workers,
            "worker_kind": _KINDS[given.reader_pool_type],
            "prefetch": 2 if n_workers <= 4 else 1,
        },
    )


def _dataset(given: ReaderArguments, batched: bool) -> tuple[ParquetDataset, NGram | None]:
    """The dataset, and the n-gram, if there is one."""
    source, filesystem = _open(given)
    schema_fields, spec = given.schema_fields, given.transform_spec
    if spec is not None and not isinstance(spec, TransformSpec):
        raise ConfigError(f"transform_spec is a TransformSpec, not {spec!r:.80}")
    predicates = [as_predicate(each) for each in (given.predicate, given.filters) if each is not None]
    if batched and given.predicate is not None:
        predicates[0] = on_frames(predicates[0])
    options = {
        "filters": in_reduce(predicates, all) if predicates else None,
        "row_groups": given.rowgroup_selector,
        "filesystem": filesystem,
    }
    if not isinstance(schema_fields, NGram):
        columns = None if schema_fields is None else [_column(each) for each in _list(schema_fields)]
        return ParquetDataset(source, columns, **options), None
    dataset = ParquetDataset(source, **options)
    if spec is not None:  # it is given what is wanted of any row
        columns = _columns_of(schema_fields, list(dataset.schema.fields))
        dataset = dataset if columns is None else ParquetDataset(source, columns, **options)
    return dataset, schema_fields


def _shard(cur_shard: Any, shard_count: Any) -> tuple[int, int]:
    """Which shard of how many; ``(0, 1)`` where both are None."""
    if cur_shard is None and shard_count is None:
        return 0, 1
    if not isinstance(cur_shard, numbers.Integral) or not isinstance(shard_count, numbers.Integral):
        raise ConfigError(
            f"cur_shard and shard_count are integers that go together; got {cur_shard!r:.40} and {shard_count!r:.40}"
        )
    return int(cur_shard), int(shard_count)


def _open(given: ReaderArguments) -> tuple[Any, Any]:
    """Where the files are, and the file system that this is a path in, if it is one."""
    source = given.source
    cache_type, filesystem, options = given.cache_type, given.filesystem, given.storage_options
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
        if given.cache_location is None:
            raise ConfigError("cache_type='local-disk' needs a folder to keep things in: cache_location=")
        if filesystem is None and is_url and scheme not in ("file", "hdfs", "viewfs"):
            source = CachedStorageConnector(storage_connector_from_url(source), given.cache_location, given.cache_size_limit)
        elif filesystem is not None or scheme in ("hdfs", "viewfs"):
            raise ConfigError(
                "cache_type='local-disk' keeps what is read of a storage connector (s3://, mongodb://, …); of a file system of "
                "fsspec or pyarrow it keeps nothing: leave it out, or give the URL alone"
            )
    return source, filesystem


def _list(schema_fields: Any) -> list[Any]:
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
        resolved = ngram.resolve(names)
    except ConfigError:
        return None
    others = [resolved.timestamp_field] + ([] if resolved.group_field is None else [resolved.group_field])
    return list(dict.fromkeys([*resolved.get_field_names_at_all_timesteps(), *others]))
