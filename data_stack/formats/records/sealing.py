"""Renews the manifest of a record dataset that another program wrote or appended to."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.records.layout import REFS, SPEC, bag_name, parse_spec
from data_stack.formats.records.sharded import shard_names
from data_stack.formats.records.writer import RecordWriter
from data_stack.io.folder import folder_of


def seal(source: Any, *, prefix: str = "") -> int:
    """Give a dataset in a folder of this machine, or each of its shards, a manifest of all samples that its columns share.

    What an earlier manifest covers is read and held against it. What lies behind the last whole sample, which an interrupted
    writer left, is cut off.

    Args:
        source: the folder, see :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.

    Returns:
        The number of samples.

    Raises:
        ConfigError: it is in a store, is of the layout of Granular 0.21 and earlier, or there is no dataset.
        DatasetFileCorruptError: what the earlier manifest covers is damaged.
        StorageConflictError: a writer has it open.
    """
    folder = folder_of(source, prefix)
    parts = [folder] if folder.has_file(SPEC) else [folder.subfolder(name) for name in shard_names(folder)]
    if folder.path is None or not parts or any(part.has_file(bag_name(REFS)) for part in parts):
        raise ConfigError(
            f"{folder.name!r} cannot be sealed: it is to be a record dataset, or shards, in a folder of this machine, of the "
            f"layout of Granular 0.22 and later. `data-stack convert` writes any other anew"
        )
    n_samples = 0
    for part in parts:
        types = parse_spec(part.read(SPEC), part.full_name(SPEC))
        with RecordWriter(part, types, codecs=dict.fromkeys(types.values())) as writer:  # nothing is encoded
            n_samples += len(writer)
    return n_samples
