"""``make_reader`` and ``make_batch_reader``: their arguments, and the reader that they ask for."""

from __future__ import annotations

import numbers
import re
import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.dataset.iterator.indices import check_integer
from data_stack.exception import ConfigError, ResourceNotFoundError
from data_stack.formats import parquet
from data_stack.formats.parquet import NGramIterator, ParquetDataset, Schema
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.selecting import as_predicate, in_reduce
from data_stack.formats.parquet.selecting.petastorm_predicates import on_frames
from data_stack.formats.parquet.transformed import TransformedDatasetIterator
from data_stack.io.storage_connectors import CachedStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader.plan import Uneven
from data_stack.loader.ranks import warn_without_shard
from data_stack.util.functions import has_parameter
from data_stack.util.processors import n_processors
from data_stack_petastorm import transform
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.iteration import Reader
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.predicates import OfFrames

__all__ = ["Reader", "ReaderArguments", "make_batch_reader", "make_reader"]

_MOST_WORKERS_PER_PROCESSOR = 2
_KINDS: Final = {"thread": "in_process", "process": "processes", "dummy": "inline"}


class ParquetFilesNotFoundError(ResourceNotFoundError, FileNotFoundError):
    """The URL of a reader has no Parquet files."""


class NoFieldsError(ConfigError, RuntimeError):
    """None of ``schema_fields`` is a field of the dataset."""


@dataclass(frozen=True)
class ReaderArguments:
    """What :func:`make_reader` and :func:`make_batch_reader` take: Petastorm's arguments, in its order and with its defaults.

    Attributes:
        source: folder, file or list of files: a path, a URL (``file://``, ``s3://``, ``hdfs://``, ``mongodb://`` …), a
            storage connector, or resources of a dataset. Any Parquet will do.
        schema_fields: fields, names, and regular expressions of whole names; rows have the fields first, then those that are
            matched. Or an :class:`~data_stack_petastorm.ngram.NGram` for sequences ``{offset: named tuple}``. None or [] for all.
        reader_pool_type: "thread", "process" or "dummy" (none).
        workers_count: how many at most. For files of this machine and without a ``transform_spec`` at most two for
            each processor: more would be in each other's way.
        seed: any integer, 0 too, decides all orders, for any pool and number of workers. Which rows a shard has does not depend
            on it. None: another order at each start; for shards 0, so that the state of one of them suits all.
        shuffle_rows: rows of each row group in a random order.
        shuffle_row_groups: row groups in a random order, another one in each epoch.
        shuffle_row_drop_partitions: k > 1 mixes the rows of k random row groups with each other. Each is read once.
        predicate: which rows: one of :mod:`data_stack.formats.parquet.selecting`, or any object with ``get_fields()`` and
            ``do_include(values)``. Its fields need not be among ``schema_fields``.
        rowgroup_selector: of row groups by an index.
        num_epochs: how often all rows are given; None: without an end.
        cur_shard: which of the shards this reader gives.
        shard_count: how many there are. Together they have each row once, whatever their seeds, see ``uneven``.
        shard_seed: as ``seed``, where that is None; deprecated.
        cache_type: "null", or "local-disk" to keep what is read of a remote store under ``cache_location``, by its content. Files
            of this machine are not copied. Other files there are not touched, and the cache stays there for the next reader.
        cache_location: a folder.
        cache_size_limit: bytes that it may take; None for no limit.
        transform_spec: what is made of each row, a :class:`~data_stack_petastorm.transform.TransformSpec`.
        filters: of pyarrow: ``[("speed", ">", 3)]`` or an expression; all of it has an effect on rows.
        storage_options: for fsspec, with which the URL is opened then.
        filesystem: of pyarrow or fsspec, in which ``dataset_url`` is a path.
        uneven: what becomes of rows that ``shard_count`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad",
            "drop" or "keep". None: each row is given once ("keep"), but loaders of the reader (a DataLoader, a dataset of
            TensorFlow) repeat a few rows for equally many steps on all ranks ("pad").
        nulls: "nan" gives NaN for floats without a value, "none" None, which loaders of the reader refuse. None: None, but NaN in
            loaders of :func:`make_batch_reader`, as in Petastorm.
        timestamp_unit: "s", "ms", "us" or "ns", in which all timestamps are given; None: that of each column.
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
    transform_spec: parquet.TransformSpec | None = None
    filters: Any = None
    storage_options: Mapping[str, Any] | None = None
    zmq_copy_buffers: bool = True
    filesystem: Any = None
    convert_early_to_numpy: bool = False
    _: KW_ONLY
    uneven: Uneven | None = None
    nulls: Nulls | None = None
    timestamp_unit: str | None = None
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
        ParquetFilesNotFoundError: there are no Parquet files; it is a ResourceNotFoundError and an OSError.
        DatasetFileCorruptError: a footer is damaged, or files differ in their columns.
        NoFieldsError: ``schema_fields`` match nothing; it is a ConfigError and a RuntimeError.
        NoDataAvailableError: there are fewer rows than shards (unless ``uneven`` is "keep").
        ConfigError: an argument is out of range, or there is no such field; it is a ValueError.

    Warns:
        UserWarning: no row is selected, the dataset is empty, or a name or pattern in ``schema_fields`` matches nothing; or this
            is one of several processes that train together, and no shard is given.
    """
    return _make(ReaderArguments(dataset_url, *arguments, **named), batched=False)


def make_batch_reader(dataset_url_or_urls: Any, *arguments: Any, **named: Any) -> Reader:
    """Row groups of a Parquet dataset, one named tuple of arrays each; values are decoded, nulls exact.

    Arguments as for :func:`make_reader`, except:

    * ``transform_spec`` is of DataFrames of a row group, unless it says another ``on``. It may leave rows out; for a
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader it leaves out one of the first 16 rows, or none.
    * The function of a ``predicate`` may be one of columns: of a DataFrame in ``do_include``, of Series in ``in_lambda``.
    * ``shuffle_row_drop_partitions`` of k > 1 cuts each row group into k parts, each a tuple of its own; the parts of k row
      groups are mixed.
    * Shards have equally many *row groups*, up to one, and so not equally many rows. A
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader divides the rows themselves.

    Raises:
        TypeError, ParquetFilesNotFoundError, DatasetFileCorruptError, NoFieldsError, ConfigError: as :func:`make_reader`.
    """
    return _make(ReaderArguments(dataset_url_or_urls, *arguments, **named), batched=True)


def _make(given: ReaderArguments, *, batched: bool) -> Reader:
    """A reader for the arguments of one of the two functions."""
    if given.reader_pool_type not in _KINDS:
        raise ConfigError(
            f"Unknown reader_pool_type: {given.reader_pool_type!r:.40}; it is one of {', '.join(map(repr, _KINDS))}"
        )
    shard = _shard(given.cur_shard, given.shard_count)
    dataset, names, ngram = _dataset(given, batched)
    seed = _seed(given, shard)
    iterator: Any = dataset
    of_groups, drops_rows = None, False
    if (spec := given.transform_spec) is not None:
        spec, drops_rows = transform.resolve(spec, dataset, "pandas" if batched else None)
        iterator = TransformedDatasetIterator(dataset, spec, seed=seed)
        if batched and ngram is None and spec.func is not None and spec.on == "pandas" and not has_parameter(spec.func, "rng"):
            of_groups = dataset, transform.FrameTransform(spec.func, iterator.schema)
    fields, block_lengths = iterator.schema, dataset.block_lengths
    if spec is None and ngram is None:
        fields = Schema(fields.name, [fields[name] for name in names])
    if ngram is not None:
        ngram.resolve_regex_field_names(fields, dataset.schema)
        iterator = NGramIterator(iterator, ngram.engine)
        block_lengths = iterator.block_lengths
        fields = fields.view(iterator.ngram.get_field_names_at_all_timesteps())
    n_workers = check_integer("workers_count", given.workers_count, at_least=1)
    if dataset.is_local and spec is None:  # nothing is waited for but processors
        n_workers = min(n_workers, _MOST_WORKERS_PER_PROCESSOR * n_processors())
    n_mixed = check_integer("shuffle_row_drop_partitions", given.shuffle_row_drop_partitions, at_least=1)
    shuffles_row_groups = bool(given.shuffle_row_groups)
    return Reader(
        dataset,
        iterator,
        block_lengths=block_lengths,
        fields=fields,
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
        of_groups=of_groups,
        fills_nulls=given.nulls == "nan" or (given.nulls is None and batched),
        drops_rows=drops_rows and of_groups is not None,
        has_own_seed=given.seed is not None or given.shard_seed is not None,
        reported={"zmq_copy_buffers": given.zmq_copy_buffers},
    )


def _seed(given: ReaderArguments, shard: tuple[int, int]) -> int:
    if given.shard_seed is not None:
        warnings.warn(
            "shard_seed was deprecated and will be removed in future versions. Give seed, which decides all orders", stacklevel=4
        )
    seed = given.shard_seed if given.seed is None else given.seed
    if seed is None:
        seed = secrets.randbits(63) if shard[1] == 1 else 0
    return seed


def _dataset(given: ReaderArguments, batched: bool) -> tuple[ParquetDataset, list[str], NGram | None]:
    """The dataset, the names of its fields in the order of rows, and the n-gram, if there is one."""
    source, filesystem = _open(given)
    schema_fields, spec = given.schema_fields, given.transform_spec
    if spec is not None and not isinstance(spec, parquet.TransformSpec):
        raise ConfigError(f"transform_spec is a TransformSpec, not {spec!r:.80}")
    predicate = given.predicate
    if batched and callable(getattr(predicate, "do_include", None)) and not isinstance(predicate, parquet.Predicate):
        predicate = OfFrames(predicate)
    predicates = [as_predicate(each) for each in (predicate, given.filters) if each is not None]
    if batched and predicate is not None:
        predicates[0] = on_frames(predicates[0])
    options = {
        "filters": in_reduce(predicates, all) if predicates else None,
        "row_groups": given.rowgroup_selector,
        "filesystem": filesystem,
        "nulls": given.nulls or "none",
        "timestamp_unit": given.timestamp_unit,
    }
    try:
        if not isinstance(schema_fields, (NGram, parquet.NGram)):
            choices = [] if schema_fields is None else _list(schema_fields)
            return (*_chosen(source, choices, options), None)
        ngram = NGram.of(schema_fields)
        dataset = ParquetDataset(source, **options)
        if spec is not None:  # it is given what is wanted of any row
            columns = _columns_of(ngram, list(dataset.schema.fields))
            dataset = dataset if columns is None else ParquetDataset(source, columns, **options)
    except ResourceNotFoundError as error:
        raise ParquetFilesNotFoundError(error.identifier, error.location) from error
    return dataset, [], ngram


def _chosen(source: Any, choices: list[Any], options: Mapping[str, Any]) -> tuple[ParquetDataset, list[str]]:
    """The dataset with some fields, and their names in the order of a schema view: fields first, then what patterns match."""
    if not choices:
        dataset = ParquetDataset(source, **options)
        return dataset, list(dataset.schema.fields)
    regexes = [_regex(choice) for choice in choices]
    try:
        dataset = ParquetDataset(source, [re.compile("|".join(regexes))], **options)
    except ConfigError as error:
        ParquetDataset(source, **options)  # raises if the cause is another
        raise NoFieldsError(f"No fields matching the criteria '{choices!r:.400}' were found in the dataset: {error}") from error
    names = list(dataset.schema.fields)
    exact = [choice.name for choice in choices if not isinstance(choice, (str, re.Pattern))]
    for name in exact:
        dataset.schema[name]  # raises, with the names that there are
    for choice, regex in zip(choices, regexes, strict=True):
        if not any(re.fullmatch(regex, name) for name in names):
            warnings.warn(f"{choice!r:.80} in schema_fields matches no field of the dataset, and has no effect", stacklevel=6)
    return dataset, list(dict.fromkeys([*exact, *names]))


def _regex(choice: Any) -> str:
    """A regular expression of the whole names that a field, name or regular expression means."""
    if not isinstance(choice, (str, re.Pattern)):
        name = getattr(choice, "name", None)
        if not isinstance(name, str):
            raise ConfigError(f"schema_fields are fields, names and regular expressions, not {choice!r:.80}")
        return re.escape(name)
    try:
        compiled = re.compile(choice)
    except re.error:  # a name such as "speed (km"
        return re.escape(str(choice))
    flags = "".join(letter for letter in "imsx" if compiled.flags & re.RegexFlag[letter.upper()])
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", compiled.pattern)
    return f"{re.escape(text)}|(?{flags}:{text})"


def _shard(cur_shard: Any, shard_count: Any) -> tuple[int, int]:
    """Which shard of how many; ``(0, 1)`` where both are None."""
    if cur_shard is None and shard_count is None:
        remedy = "Pass cur_shard=rank, shard_count=world; or cur_shard=0, shard_count=1 if each process needs all rows"
        warn_without_shard("this reader has no cur_shard and shard_count", remedy, stacklevel=4)
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
        raise ConfigError(f"Unknown cache_type: {cache_type!r:.40}; it is 'null' or 'local-disk'")
    is_url = isinstance(source, str) and "://" in source
    scheme = urlsplit(source).scheme.lower() if is_url else ""
    if filesystem is None and options and is_url and scheme != "file":
        filesystem = FilesystemResolver(source, storage_options=options).filesystem()
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


def _columns_of(ngram: NGram, names: Sequence[str]) -> list[str] | None:
    """The fields that an n-gram names; None if it names some that the transform makes."""
    try:
        resolved = ngram.engine.resolve(names)
    except ConfigError:
        return None
    others = [resolved.timestamp_field] + ([] if resolved.group_field is None else [resolved.group_field])
    return list(dict.fromkeys([*resolved.get_field_names_at_all_timesteps(), *others]))
