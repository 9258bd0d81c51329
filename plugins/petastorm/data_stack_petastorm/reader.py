"""``make_reader`` and ``make_batch_reader``, which turn Petastorm's arguments into a reader."""

from __future__ import annotations

import numbers
import os
import re
import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, ResourceNotFoundError
from data_stack.formats.parquet import ParquetDataset, Schema
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.schema import match_names
from data_stack.formats.parquet.selecting import as_predicate
from data_stack.io.storage_connectors import CachedStorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.loader.plan import Uneven
from data_stack.loader.ranks import warn_without_shard
from data_stack_petastorm import transform
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.iteration import Reader
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.ngram_iterator import NGramIterator
from data_stack_petastorm.predicates import in_reduce
from data_stack_petastorm.selectors import select_row_groups

__all__ = ["Reader", "ReaderArguments", "make_batch_reader", "make_reader"]

_MAX_WORKERS_PER_PROCESSOR = 2
_KINDS: Final = {"thread": "in_process", "process": "processes", "dummy": "inline"}


class ParquetFilesNotFoundError(ResourceNotFoundError, FileNotFoundError):
    """The URL of a reader has no Parquet files."""


class NoFieldsError(ConfigError, RuntimeError):
    """``schema_fields`` matches no field of the dataset."""


@dataclass(frozen=True)
class ReaderArguments:
    """The arguments of :func:`make_reader` and :func:`make_batch_reader`: Petastorm's, in its order and with its defaults.

    Attributes:
        source: a folder, a file or a list of files: a path, a URL (``file://``, ``s3://``, ``hdfs://``, ``mongodb://`` …), a
            storage connector, or resources of a dataset. Any Parquet works.
        schema_fields: fields, names, and regular expressions of whole names; a row has the fields first, then the matched ones.
            Or an :class:`~data_stack_petastorm.ngram.NGram` for sequences ``{offset: named tuple}``. None or []: all fields.
        reader_pool_type: "thread", "process", or "dummy" for no workers.
        workers_count: maximum number of workers. For local files without a ``transform_spec``, at most two per processor.
        seed: an integer, 0 included, that determines all orders, for any pool and number of workers. The rows of a shard do not
            depend on it. None: a new order at each start; 0 for shards, so that all shards can load the state of one.
        shuffle_rows: whether to shuffle the rows of each row group.
        shuffle_row_groups: whether to shuffle the row groups, in each epoch differently.
        shuffle_row_drop_partitions: k > 1 mixes the rows of k random row groups. Each row group is read once.
        predicate: selects rows: one of :mod:`data_stack_petastorm.predicates`, or any object with ``get_fields()`` and
            ``do_include(values)``. Its fields need not be among ``schema_fields``.
        rowgroup_selector: selects row groups by an index.
        num_epochs: number of epochs; None: endless.
        cur_shard: number of the shard to read.
        shard_count: number of shards. Together they have each row once, for any seeds; see ``uneven``.
        shard_seed: used as ``seed`` if that is None; deprecated.
        cache_type: "null", or "local-disk" to cache the bytes of a remote store under ``cache_location``, by their content.
            Local files are not copied. Other files in the folder are not touched, and the cache stays for the next reader.
        cache_location: folder of the cache.
        cache_size_limit: maximum number of bytes of the cache; None: no limit.
        transform_spec: transforms the rows, a :class:`~data_stack_petastorm.transform.TransformSpec`.
        filters: filters of pyarrow, ``[("speed", ">", 3)]`` or an expression; they select rows.
        storage_options: options of fsspec, which then opens the URL.
        filesystem: a file system of pyarrow or fsspec, in which ``dataset_url`` is a path.
        uneven: how to divide rows that ``shard_count`` does not divide, see :class:`~data_stack.loader.plan.Plan`: "pad",
            "drop" or "keep". None: the reader returns each row once ("keep"), but its loaders (a DataLoader, a dataset of
            TensorFlow) repeat a few rows, so that all ranks make equally many steps ("pad").
        nulls: "nan" reads floats without a value as NaN, "none" as None, which loaders of the reader refuse. None: as None, but
            as NaN in loaders of :func:`make_batch_reader`, as in Petastorm.
        timestamp_unit: "s", "ms", "us" or "ns", the unit of all timestamps; None: the unit of each column.
        results_queue_size: ignored; the loader keeps one or two chunks per worker.
        cache_row_size_estimate: ignored.
        cache_extra_settings: ignored.
        hdfs_driver: ignored; pyarrow has one driver.
        zmq_copy_buffers: ignored; processes use shared memory.
        convert_early_to_numpy: ignored; workers decode.
        pyarrow_serialize: ignored; only :func:`make_reader` of Petastorm has it.
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
    transform_spec: transform.TransformSpec | None = None
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
    """Read the rows of a Parquet dataset as named tuples of decoded values, in the order of the fields.

    ::

        with make_reader("file:///data/frames", schema_fields=["id", "image"], seed=7, num_epochs=10) as reader:
            for row in reader:
                row.id, row.image

    Args:
        dataset_url: the dataset.
        arguments: as for :class:`ReaderArguments`, which has Petastorm's; ``docs/from_petastorm.md`` lists the changes.
        named: likewise.

    Raises:
        TypeError: an argument is unknown.
        ParquetFilesNotFoundError: there are no Parquet files; this is a ResourceNotFoundError and an OSError.
        DatasetFileCorruptError: a footer is damaged, or files have different columns.
        NoFieldsError: ``schema_fields`` matches nothing; this is a ConfigError and a RuntimeError.
        NoDataAvailableError: there are fewer rows than shards (unless ``uneven`` is "keep").
        ConfigError: an argument is out of range, or a field does not exist; this is a ValueError.

    Warns:
        UserWarning: no row is selected, the dataset is empty, or a name or pattern in ``schema_fields`` matches nothing; or this
            is one of several processes that train together, and ``cur_shard`` is missing.
    """
    return _make(ReaderArguments(dataset_url, *arguments, **named), batched=False)


def make_batch_reader(dataset_url_or_urls: Any, *arguments: Any, **named: Any) -> Reader:
    """Read the row groups of a Parquet dataset as named tuples of arrays of decoded values; nulls stay None.

    Arguments as for :func:`make_reader`, except:

    * The function of ``transform_spec`` gets the DataFrame of a row group, unless its ``on`` says otherwise. It may drop rows; a
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader only allows this if it drops one of the first 16 rows.
    * The function of a ``predicate`` may get columns: a DataFrame in ``do_include``, Series in ``in_lambda``.
    * ``shuffle_row_drop_partitions`` of k > 1 splits each row group into k parts, each a tuple of its own, and mixes the parts
      of k row groups.
    * Shards have the same number of *row groups*, give or take one, but not of rows. A
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader divides the rows themselves.

    Raises:
        TypeError, ParquetFilesNotFoundError, DatasetFileCorruptError, NoFieldsError, ConfigError: as for :func:`make_reader`.
    """
    return _make(ReaderArguments(dataset_url_or_urls, *arguments, **named), batched=True)


def _make(given: ReaderArguments, *, batched: bool) -> Reader:
    """Make the reader."""
    if given.reader_pool_type not in _KINDS:
        raise ConfigError(
            f"Unknown reader_pool_type: {given.reader_pool_type!r:.40}; expected one of {', '.join(map(repr, _KINDS))}"
        )
    shard = _shard(given.cur_shard, given.shard_count)
    dataset, names, ngram = _dataset(given, batched)
    seed = _seed(given, shard)
    iterator: Any = dataset
    fields, block_lengths = dataset.schema, dataset.block_lengths
    of_groups, drops_rows = None, False
    if (spec := given.transform_spec) is not None:
        spec, drops_rows = transform.resolve(spec, dataset, "pandas" if batched else None)
        fields = spec.schema_of(dataset.schema)
        if spec.func is None:
            iterator = dataset.select(*fields.fields)
        else:
            function = transform.BatchTransform(spec, fields, zones=dataset.time_zones)
            iterator = dataset.map(function, batched=True, seed=seed if spec.draws else None)
        if (
            batched
            and ngram is None
            and spec.func is not None
            and spec.on == "pandas"
            and not spec.draws
        ):
            function_of_groups = transform.BatchTransform(
                spec, fields, may_drop=True, zones=dataset.time_zones
            )
            of_groups = dataset, function_of_groups
    elif ngram is None:
        fields = Schema(fields.name, [fields[name] for name in names])
    if ngram is not None:
        ngram.resolve_regex_field_names(fields, dataset.schema)
        iterator = NGramIterator(iterator, ngram, schema=fields, timestamps=dataset)
        block_lengths = iterator.block_lengths
        fields = fields.view(
            dict.fromkeys(name for names in iterator.fields.values() for name in names)
        )
    n_workers = check_integer("workers_count", given.workers_count, at_least=1)
    if dataset.is_local and spec is None:  # only processors limit the speed
        n_processors = (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
        n_workers = min(n_workers, _MAX_WORKERS_PER_PROCESSOR * n_processors)
    n_mixed = check_integer(
        "shuffle_row_drop_partitions", given.shuffle_row_drop_partitions, at_least=1
    )
    shuffles_row_groups = bool(given.shuffle_row_groups)
    return Reader(
        dataset,
        iterator,
        block_lengths=block_lengths,
        fields=fields,
        ngram=ngram,
        batched=batched,
        shuffling=(
            shuffles_row_groups,
            bool(given.shuffle_rows),
            n_mixed if shuffles_row_groups else 1,
        ),
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
            "shard_seed was deprecated and will be removed in future versions. Use seed, which determines all orders",
            stacklevel=4,
        )
    seed = given.shard_seed if given.seed is None else given.seed
    if seed is None:
        seed = secrets.randbits(63) if shard[1] == 1 else 0
    return seed


def _dataset(
    given: ReaderArguments, batched: bool
) -> tuple[ParquetDataset, list[str], NGram | None]:
    """Open the dataset; also return the names of its fields in the order of rows, and the n-gram or None."""
    source, filesystem = _open(given)
    schema_fields, spec = given.schema_fields, given.transform_spec
    if spec is not None and not isinstance(spec, transform.TransformSpec):
        raise ConfigError(f"transform_spec must be a TransformSpec, got {spec!r:.80}")
    predicates = [
        as_predicate(each) for each in (given.predicate, given.filters) if each is not None
    ]
    if batched and given.predicate is not None:
        from data_stack_petastorm.frames import on_frames

        predicates[0] = on_frames(predicates[0])
    options = {
        "filters": in_reduce(predicates, all) if predicates else None,
        "row_groups": _row_groups(given.rowgroup_selector, source, filesystem),
        "filesystem": filesystem,
        "nulls": given.nulls or "none",
        "timestamp_unit": given.timestamp_unit,
    }
    try:
        if not isinstance(schema_fields, NGram):
            choices = [] if schema_fields is None else _list(schema_fields)
            return (*_chosen(source, choices, options), None)
        ngram = schema_fields
        dataset = ParquetDataset(source, **options)
        if spec is not None:  # its function gets the fields of all offsets
            columns = _columns_of(ngram, list(dataset.schema.fields))
            dataset = dataset if columns is None else ParquetDataset(source, columns, **options)
    except ResourceNotFoundError as error:
        raise ParquetFilesNotFoundError(error.identifier, error.location) from error
    return dataset, [], ngram


def _chosen(
    source: Any, choices: list[Any], options: Mapping[str, Any]
) -> tuple[ParquetDataset, list[str]]:
    """Open the dataset with some fields; also return their names in the order of a schema view: fields, then matched names."""
    if not choices:
        dataset = ParquetDataset(source, **options)
        return dataset, list(dataset.schema.fields)
    regexes = [_regex(choice) for choice in choices]
    try:
        dataset = ParquetDataset(source, [re.compile("|".join(regexes))], **options)
    except ConfigError as error:
        ParquetDataset(source, **options)  # raises if there is another cause
        raise NoFieldsError(
            f"No fields matching the criteria '{choices!r:.400}' were found in the dataset: {error}"
        ) from error
    names = list(dataset.schema.fields)
    exact = [choice.name for choice in choices if not isinstance(choice, (str, re.Pattern))]
    for name in exact:
        dataset.schema[name]  # raises if the field is unknown
    for choice, regex in zip(choices, regexes, strict=True):
        if not any(re.fullmatch(regex, name) for name in names):
            warnings.warn(
                f"{choice!r:.80} in schema_fields matches no field of the dataset and is ignored",
                stacklevel=6,
            )
    return dataset, list(dict.fromkeys([*exact, *names]))


def _regex(choice: Any) -> str:
    """Return a regular expression that matches the whole names of a field, name or regular expression."""
    if not isinstance(choice, (str, re.Pattern)):
        name = getattr(choice, "name", None)
        if not isinstance(name, str):
            raise ConfigError(
                f"schema_fields must contain fields, names and regular expressions, got {choice!r:.80}"
            )
        return re.escape(name)
    try:
        compiled = re.compile(choice)
    except re.error:  # a name such as "speed (km"
        return re.escape(str(choice))
    flags = "".join(letter for letter in "imsx" if compiled.flags & re.RegexFlag[letter.upper()])
    text = re.sub(r"^\(\?[aiLmsux]+\)", "", compiled.pattern)
    return f"{re.escape(text)}|(?{flags}:{text})"


def _shard(cur_shard: Any, shard_count: Any) -> tuple[int, int]:
    """Return the shard and the number of shards; ``(0, 1)`` if both are None."""
    if cur_shard is None and shard_count is None:
        remedy = "Pass cur_shard=rank, shard_count=world; or cur_shard=0, shard_count=1 if each process needs all rows"
        warn_without_shard("this reader has no cur_shard and shard_count", remedy, stacklevel=4)
        return 0, 1
    if not isinstance(cur_shard, numbers.Integral) or not isinstance(shard_count, numbers.Integral):
        raise ConfigError(
            f"cur_shard and shard_count must both be integers, got {cur_shard!r:.40} and {shard_count!r:.40}"
        )
    return int(cur_shard), int(shard_count)


def _open(given: ReaderArguments) -> tuple[Any, Any]:
    """Return the source of the files, and the file system in which it is a path, or None."""
    source = given.source
    cache_type, filesystem, options = given.cache_type, given.filesystem, given.storage_options
    if cache_type not in (None, "null", "local-disk"):
        raise ConfigError(
            f"Unknown cache_type: {cache_type!r:.40}; expected 'null' or 'local-disk'"
        )
    is_url = isinstance(source, str) and "://" in source
    scheme = urlsplit(source).scheme.lower() if is_url else ""
    if filesystem is None and options and is_url and scheme != "file":
        filesystem = FilesystemResolver(source, storage_options=options).filesystem()
    if cache_type == "local-disk":
        if given.cache_location is None:
            raise ConfigError("cache_type='local-disk' requires cache_location=")
        if filesystem is None and is_url and scheme not in ("file", "hdfs", "viewfs"):
            source = CachedStorageConnector(
                storage_connector_from_url(source), given.cache_location, given.cache_size_limit
            )
        elif filesystem is not None or scheme in ("hdfs", "viewfs"):
            raise ConfigError(
                "cache_type='local-disk' only caches storage connectors (s3://, mongodb://, …), not file systems of fsspec or "
                "pyarrow: omit it, or pass the URL without filesystem= and storage_options="
            )
    return source, filesystem


def _list(schema_fields: Any) -> list[Any]:
    if isinstance(schema_fields, (str, Mapping)) or not isinstance(schema_fields, Iterable):
        raise ConfigError(
            f"schema_fields must be a list of names, regular expressions or fields, or an NGram, got {schema_fields!r:.80}"
        )
    return list(schema_fields)


def _columns_of(ngram: NGram, names: Sequence[str]) -> list[str] | None:
    """Return the fields that an n-gram names; None if the transform makes some of them."""
    choices = [*ngram.get_field_names_at_all_timesteps(), ngram.timestamp_field]
    try:
        found = [name for choice in choices for name in match_names(choice, names)]
    except ConfigError:
        return None
    return list(dict.fromkeys(found))


def _row_groups(selector: Any, source: Any, filesystem: Any) -> Any:
    if not hasattr(selector, "select_row_groups"):
        return selector
    try:
        return select_row_groups(
            Footers(find_files(source, filesystem=filesystem), lazily=True), selector
        )
    except ResourceNotFoundError as error:
        raise ParquetFilesNotFoundError(error.identifier, error.location) from error
