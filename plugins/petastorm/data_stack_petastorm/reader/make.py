"""``make_reader`` and ``make_batch_reader``, which turn Petastorm's arguments into a reader."""

from __future__ import annotations

import numbers
import secrets
from collections.abc import Mapping
from typing import Any, Final

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.loader.ranks import warn_without_shard
from data_stack.util.executor import n_processors
from data_stack.util.program_lines import warn_program
from data_stack_petastorm.reader.arguments import ReaderArguments
from data_stack_petastorm.reader.dataset import open_dataset
from data_stack_petastorm.reader.reader import Reader
from data_stack_petastorm.reader.shuffling import Shuffling
from data_stack_petastorm.reader.source import make_source

#: The loader's kind of workers for each of Petastorm's pools.
_WORKER_KINDS: Final = {"thread": "in_process", "process": "processes", "dummy": "inline"}

#: More workers than this do not read local files faster, as only processors limit the speed.
_MAX_WORKERS_PER_PROCESSOR = 2

#: Up to this many workers prepare two chunks ahead each, more workers one.
_MAX_WORKERS_WITH_TWO_CHUNKS = 4


def make_reader(dataset_url: Any, *arguments: Any, **named: Any) -> Reader:
    """Read the rows of a Parquet dataset as named tuples of decoded values.

    The values are in the order of the fields.

    ::

        with make_reader(
            "file:///data/frames", schema_fields=["id", "image"], seed=7, num_epochs=10
        ) as reader:
            for row in reader:
                row.id, row.image

    Args:
        dataset_url: the dataset.
        arguments: as for :class:`ReaderArguments`, which has Petastorm's;
            ``docs/reference/petastorm_differences.md`` lists the changes.
        named: likewise.

    Raises:
        TypeError: an argument is unknown.
        ParquetFilesNotFoundError: there are no Parquet files; this is a ResourceNotFoundError and
            an OSError.
        DatasetFileCorruptError: a footer is damaged, or files have different columns.
        NoFieldsError: ``schema_fields`` matches nothing; this is a ConfigError and a RuntimeError.
        NoDataAvailableError: there are fewer rows than shards (unless ``uneven`` is "keep").
        ConfigError: an argument is out of range, or a field does not exist; this is a ValueError.

    Warns:
        UserWarning: no row is selected, the dataset is empty, or a name or pattern in
            ``schema_fields`` matches nothing; or this is one of several processes that train
            together, and ``cur_shard`` is missing.
    """
    return _make_reader(ReaderArguments(dataset_url, *arguments, **named), batched=False)


def make_batch_reader(dataset_url_or_urls: Any, *arguments: Any, **named: Any) -> Reader:
    """Read the row groups of a Parquet dataset as named tuples of arrays of decoded values.

    An array has shape ``(n_rows, ...)``. Nulls stay None. The arguments are those of
    :func:`make_reader`, with these differences:

    * The function of ``transform_spec`` gets the DataFrame of a row group, unless its ``on`` says
      otherwise. It may drop rows; a :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader
      only allows this if it drops one of the first 16 rows.
    * The function of a ``predicate`` may get columns: a DataFrame in ``do_include``, Series in
      ``in_lambda``.
    * ``shuffle_row_drop_partitions`` of k > 1 splits each row group into k parts, each a tuple of
      its own, and mixes the parts of k row groups.
    * Shards have the same number of *row groups*, give or take one, but not of rows. A
      :class:`~data_stack_petastorm.pytorch.DataLoader` of the reader divides the rows themselves.

    Raises:
        TypeError, ParquetFilesNotFoundError, DatasetFileCorruptError, NoFieldsError, ConfigError:
            as for :func:`make_reader`.
    """
    return _make_reader(ReaderArguments(dataset_url_or_urls, *arguments, **named), batched=True)


def _make_reader(arguments: ReaderArguments, *, batched: bool) -> Reader:
    """Make a reader of rows, or of row groups if it is ``batched``.

    Raises:
        ConfigError: an argument is invalid; other errors as for :func:`make_reader`.
    """
    pool_type = arguments.reader_pool_type
    if pool_type not in _WORKER_KINDS:
        known_types = ", ".join(repr(name) for name in _WORKER_KINDS)
        raise ConfigError(
            f"Unknown reader_pool_type: {pool_type!r:.40}; expected one of {known_types}"
        )
    shard = _check_shard(arguments.cur_shard, arguments.shard_count)
    opened = open_dataset(arguments, batched=batched)
    seed = _choose_seed(arguments, n_shards=shard[1])
    source = make_source(opened, arguments.transform_spec, batched=batched, seed=seed)

    has_own_seed = arguments.seed is not None or arguments.shard_seed is not None
    row_group_rows = None
    if source.row_group_transform is not None:
        row_group_rows = (opened.dataset, source.row_group_transform)
    return Reader(
        opened.dataset,
        source.iterator,
        block_lengths=source.block_lengths,
        fields=source.fields,
        ngram=opened.ngram,
        batched=batched,
        shuffling=_make_shuffling(arguments),
        options=_make_loader_options(arguments, shard, seed, is_local=opened.dataset.is_local),
        of_groups=row_group_rows,
        fills_nulls=_fills_nulls(arguments, batched=batched),
        drops_rows=source.drops_rows,
        has_own_seed=has_own_seed,
        reported={"zmq_copy_buffers": arguments.zmq_copy_buffers},
    )


def _check_shard(cur_shard: Any, shard_count: Any) -> tuple[int, int]:
    """Return the shard and the number of shards; ``(0, 1)`` if both are None.

    Raises:
        ConfigError: only one of the two is given, or one is not an integer.

    Warns:
        UserWarning: both are None, and this is one of several training processes.
    """
    if cur_shard is None and shard_count is None:
        warn_without_shard(
            "this reader has no cur_shard and shard_count",
            "Pass cur_shard=rank, shard_count=world; or cur_shard=0, shard_count=1 if each process "
            "needs all rows",
            stacklevel=4,  # the caller of make_reader
        )
        return 0, 1
    for value in (cur_shard, shard_count):
        if not isinstance(value, numbers.Integral):
            raise ConfigError(
                "cur_shard and shard_count must both be integers, "
                f"got {cur_shard!r:.40} and {shard_count!r:.40}"
            )
    return int(cur_shard), int(shard_count)


def _choose_seed(arguments: ReaderArguments, *, n_shards: int) -> int:
    """Return the seed that the user passed, else 0 for shards, else a random seed.

    Warns:
        UserWarning: the user passed the deprecated ``shard_seed``.
    """
    if arguments.shard_seed is not None:
        warn_program(
            "shard_seed was deprecated and will be removed in future versions. Use seed, which "
            "determines all orders",
            package=__package__,
        )
    if arguments.seed is not None:
        return arguments.seed
    if arguments.shard_seed is not None:
        return arguments.shard_seed
    if n_shards > 1:
        return 0  # so that all shards can load the state of one
    return secrets.randbits(63)


def _make_shuffling(arguments: ReaderArguments) -> Shuffling:
    """Return what the reader shuffles.

    Raises:
        ConfigError: ``shuffle_row_drop_partitions`` is not a positive integer.
    """
    n_mixed = check_integer(
        "shuffle_row_drop_partitions", arguments.shuffle_row_drop_partitions, at_least=1
    )
    shuffles_row_groups = bool(arguments.shuffle_row_groups)
    if not shuffles_row_groups:
        n_mixed = 1  # mixing would change the order of the row groups
    return Shuffling(shuffles_row_groups, bool(arguments.shuffle_rows), n_mixed)


def _make_loader_options(
    arguments: ReaderArguments, shard: tuple[int, int], seed: int, *, is_local: bool
) -> Mapping[str, Any]:
    """Return the arguments of the reader's loaders, by their names.

    Args:
        arguments: the arguments of the reader.
        shard: the shard, and the number of shards.
        seed: the seed of all orders.
        is_local: whether the dataset is in local files.

    Raises:
        ConfigError: ``workers_count`` is not a positive integer.
    """
    n_workers = check_integer("workers_count", arguments.workers_count, at_least=1)
    if is_local and arguments.transform_spec is None:
        n_workers = min(n_workers, _MAX_WORKERS_PER_PROCESSOR * n_processors())
    n_chunks_ahead = 2 if n_workers <= _MAX_WORKERS_WITH_TWO_CHUNKS else 1
    has_workers = arguments.reader_pool_type != "dummy"
    return {
        "seed": seed,
        "epochs": arguments.num_epochs,
        "shard": shard,
        "uneven": arguments.uneven,
        "workers": n_workers if has_workers else None,
        "worker_kind": _WORKER_KINDS[arguments.reader_pool_type],
        "prefetch": n_chunks_ahead,
    }


def _fills_nulls(arguments: ReaderArguments, *, batched: bool) -> bool:
    """Return whether loaders of the reader replace missing floats by NaN."""
    if arguments.nulls is None:
        return batched  # Petastorm fills them for row groups only
    return arguments.nulls == "nan"
