"""Writes the samples of any iterator as a record dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs import Codecs
from data_stack.codecs.codec import Column
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.contract import Indexable, adapted
from data_stack.dataset.iterator.stacking import as_array
from data_stack.exception import ConfigError
from data_stack.formats.named_samples import by_name, samples_at_once
from data_stack.formats.records.sharded_writer import ShardedRecordWriter
from data_stack.formats.records.writer import RecordWriter
from data_stack.io.progress import batch_bar

__all__ = ["inferred_spec", "write_records"]

#: Types whose values stack to a column and come out of it as they were.
_STACKED = frozenset({"array", "i64", "u64", "int", "npy"})


def write_records(
    target: Any,
    iterator: DatasetIteratorIF | Indexable,
    spec: Mapping[str, str | Column] | None = None,
    *,
    names: Sequence[str] | None = None,
    prefix: str = "",
    codecs: Codecs | None = None,
    shardlen: int | None = None,
    progress: bool | None = None,
) -> int:
    """Write all samples of an iterator as a record dataset, in batches where they have one layout.

    It goes on where an earlier run was interrupted, so the iterator has to give the same samples again.

    Args:
        target: folder, storage connector, or PreparedResources.
        iterator: dicts, or tuples with ``names``; bare samples are taken for tuples of one. Whatever has ``len()`` and
            ``[i]`` will do, such as a list.
        spec: types of the columns; None to take them from the first sample, as :func:`inferred_spec` does.
        names: names of the columns of tuples, by position.
        prefix: folder below ``target``.
        codecs: codecs of one's own, by type.
        shardlen: samples of a shard; None for a dataset without shards.
        progress: show a bar; None to show it on a terminal and in a notebook.

    Returns:
        Number of samples in the dataset.

    Raises:
        ConfigError: there is no spec for these samples, or one of them does not suit it.
        StorageError: they could not be written.
    """
    iterator = adapted(iterator)
    n_samples = len(iterator)
    if spec is None:
        if n_samples == 0:
            raise ConfigError("the columns of no samples cannot be seen: give write_records() a spec")
        spec = inferred_spec(by_name(iterator[0], names))
    writer: RecordWriter | ShardedRecordWriter
    if shardlen is None:
        writer = RecordWriter(target, spec, prefix=prefix, codecs=codecs)
    else:
        writer = ShardedRecordWriter(target, spec, prefix=prefix, codecs=codecs, shardlen=shardlen)
    with writer:
        start = len(writer)
        if start > n_samples:
            raise ConfigError(f"{writer!r} is longer than the {n_samples} samples to write: it holds something else")
        stacks = all(type_name in _STACKED and codecs is None for type_name in writer.spec.values())
        batch = samples_at_once(by_name(iterator[start], names)) if start < n_samples else 1
        for first in batch_bar(range(start, n_samples, batch), "writing records", "sample", progress):
            positions = range(first, min(n_samples, first + batch))
            columns = by_name(iterator.read_batch(positions), names) if stacks else None
            if columns is not None and all(column.dtype != object for column in columns.values()):
                writer.extend(columns)
            else:
                for sample in iterator.__getitems__(positions):
                    writer.append(by_name(sample, names))
        return len(writer)


def inferred_spec(sample: Mapping[str, Any]) -> dict[str, str | Column]:
    """The columns that suit a sample.

    Integers become ``i64``, text ``utf8``, bytes ``bytes``; arrays, tensors, numpy's numbers, floats and booleans ``array`` of
    their dtype; lists, tuples and dicts ``tree``.

    Raises:
        ConfigError: a value is nothing of these.
    """
    return {name: _column_of(name, value) for name, value in sample.items()}


def _column_of(name: str, value: Any) -> str | Column:
    if isinstance(value, (bool, float, np.generic)) or hasattr(value, "__array__"):
        array = as_array(value)
        if array.dtype != object:
            return Column("array", array.dtype, () if array.ndim == 0 else None)
    for kinds, type_name in (((int,), "i64"), ((str,), "utf8"), ((bytes, bytearray), "bytes"), ((list, tuple, Mapping), "tree")):
        if isinstance(value, kinds):
            return type_name
    raise ConfigError(f"which type column {name!r} has cannot be told from a {type(value).__name__}: give write_records() a spec")
