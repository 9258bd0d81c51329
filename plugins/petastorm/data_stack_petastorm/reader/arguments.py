"""The arguments of readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.loader.plan import Uneven
from data_stack_petastorm.transform import TransformSpec


@dataclass(frozen=True)
class ReaderArguments:
    """The arguments of :func:`make_reader` and :func:`make_batch_reader`.

    They are Petastorm's, in its order and with its defaults. Those that can only be passed by name
    are ours.

    Attributes:
        source: a folder, a file or a list of files: a path, a URL (``file://``, ``s3://``,
            ``hdfs://``, ``mongodb://`` …), a storage connector, or resources of a dataset. Any
            Parquet works.
        schema_fields: fields, names, and regular expressions of whole names; a row has the fields
            first, then the matched ones. Or an :class:`~data_stack_petastorm.ngram.NGram` for
            sequences ``{offset: named tuple}``. None or []: all fields.
        reader_pool_type: "thread", "process", or "dummy" for no workers.
        workers_count: maximum number of workers. For local files without a ``transform_spec``, at
            most two per processor.
        seed: an integer, 0 included, that determines all orders, for any pool and number of
            workers. The rows of a shard do not depend on it. None: a new order at each start; 0 for
            shards, so that all shards can load the state of one.
        shuffle_rows: whether to shuffle the rows of each row group.
        shuffle_row_groups: whether to shuffle the row groups, in each epoch differently.
        shuffle_row_drop_partitions: k > 1 mixes the rows of k random row groups. Each row group is
            read once.
        predicate: selects rows: one of :mod:`data_stack_petastorm.predicates`, or any object with
            ``get_fields()`` and ``do_include(values)``. Its fields need not be among
            ``schema_fields``.
        rowgroup_selector: selects row groups by an index.
        num_epochs: number of epochs; None: endless.
        cur_shard: number of the shard to read.
        shard_count: number of shards. Together they have each row once, for any seeds; see
            ``uneven``.
        shard_seed: used as ``seed`` if that is None; deprecated.
        cache_type: "null", or "local-disk" to cache the bytes of a remote store under
            ``cache_location``, by their content. Local files are not copied. Other files in the
            folder are not touched, and the cache stays for the next reader.
        cache_location: folder of the cache.
        cache_size_limit: maximum number of bytes of the cache; None: no limit.
        transform_spec: transforms the rows, a
            :class:`~data_stack_petastorm.transform.TransformSpec`.
        filters: filters of pyarrow, ``[("speed", ">", 3)]`` or an expression; they select rows.
        storage_options: options of fsspec, which then opens the URL.
        filesystem: a file system of pyarrow or fsspec, in which ``dataset_url`` is a path.
        uneven: how to divide rows that ``shard_count`` does not divide, see
            :class:`~data_stack.loader.plan.Plan`: "pad", "drop" or "keep". None: the reader returns
            each row once ("keep"), but its loaders (a DataLoader, a dataset of TensorFlow) repeat a
            few rows, so that all ranks make equally many steps ("pad").
        nulls: "nan" reads floats without a value as NaN, "none" as None, which loaders of the
            reader refuse. None: as None, but as NaN in loaders of :func:`make_batch_reader`, as in
            Petastorm.
        timestamp_unit: "s", "ms", "us" or "ns", the unit of all timestamps; None: the unit of each
            column.
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
    transform_spec: TransformSpec | None = None
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
