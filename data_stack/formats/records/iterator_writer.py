"""Writes the samples of any iterator as a record dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.stacking import as_array
from data_stack.exception import ConfigError
from data_stack.formats.records.codecs import Codecs
from data_stack.formats.records.codecs.codec import Column
from data_stack.formats.records.sharded_writer import ShardedRecordWriter
from data_stack.formats.records.writer import RecordWriter
from data_stack.io.progress import shows_progress

__all__ = ["inferred_spec", "write_records"]

#: Types whose values stack to a column and come out of it as they were.
_STACKED = frozenset({"array", "i64", "u64", "int", "npy"})
_BATCH_BYTES = 1 << 22
_MOST_BATCH = 1 << 12


def write_records(
    target: Any,
    iterator: DatasetIteratorIF,
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
        iterator: dicts, or tuples with ``names``; bare samples are taken for tuples of one.
        spec: types of the columns; None to take them from the first sample, as :func:`inferred_spec` does.
        names: names of the columns of tuples, by position.
        prefix: folder below ``target``.
        codecs: codecs of one's own, by type.
        shardlen: samples of a shard; None for a dataset without shards.
        progress: show a bar; None to show it on a terminal.

    Returns:
        Number of samples in the dataset.

    Raises:
        ConfigError: there is no spec for these samples, or one of them does not suit it.
        StorageError: they could not be written.
    """
    n_samples = len(iterator)
    if spec is None:
        if n_samples == 0:
            raise ConfigError("the columns of no samples cannot be seen: give write_records() a spec")
        spec = inferred_spec(_as_dict(iterator[0], names))
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
        batch = _batch_samples(iterator[start], names) if start < n_samples else 1
        for first in _with_bar(range(start, n_samples, batch), progress, n_samples - start, batch):
            positions = range(first, min(n_samples, first + batch))
            columns = _as_columns(iterator.read_batch(positions), names) if stacks else None
            if columns is not None and all(column.dtype != object for column in columns.values()):
                writer.extend(columns)
            else:
                for sample in iterator.__getitems__(positions):
                    writer.append(_as_dict(sample, names))
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


def _as_dict(sample: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    if isinstance(sample, Mapping):
        return sample
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if names is None or isinstance(names, str) or len(names) != len(values):
        raise ConfigError(
            f"samples of {len(values)} columns without names need names=[…], one for each, to be written as records; got "
            f"{names!r:.80}"
        )
    return dict(zip(names, values, strict=True))


def _as_columns(batch: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    return _as_dict(batch, names)


def _batch_samples(sample: Any, names: Sequence[str] | None) -> int:
    """How many samples like this one are worth reading at once."""
    n_bytes: int = 0
    for value in _as_dict(sample, names).values():
        n_bytes += len(value) if isinstance(value, (str, bytes)) else int(getattr(value, "nbytes", 64))
    return max(1, min(_MOST_BATCH, _BATCH_BYTES // max(1, n_bytes)))


def _with_bar(firsts: range, progress: bool | None, n_samples: int, batch: int) -> Any:
    if not shows_progress(progress):
        return firsts
    from tqdm import tqdm  # only whoever looks pays for its import

    def stepping() -> Any:
        with tqdm(desc="writing records", total=n_samples, unit="sample", leave=False) as bar:
            for first in firsts:
                yield first
                bar.update(min(batch, n_samples - bar.n))

    return stepping()
