"""Renews the manifest of a record dataset that another program wrote or appended to."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.records.layout import REFS, SPEC, bag_name, parse_spec
from data_stack.formats.records.sharded import shard_names
from data_stack.formats.records.writer import RecordWriter
from data_stack.io.folder import folder_of


def seal(source: Any, *, prefix: str = "") -> int:
    """Write a manifest of all complete samples for a dataset in a local folder, or for each of its shards.

    Samples that an earlier manifest covers are compared with it. An incomplete sample at the end, from an interrupted writer, is
    removed.

    Args:
        source: the folder, see :func:`~data_stack.io.folder.folder_of`.
        prefix: folder below ``source``.

    Returns:
        The number of samples.

    Raises:
        ConfigError: the dataset is in a store, has the layout of Granular 0.21 and earlier, or does not exist.
        DatasetFileCorruptError: samples that the earlier manifest covers are damaged.
        StorageConflictError: a writer has it open.
    """
    folder = folder_of(source, prefix)
    parts = [folder] if folder.has_file(SPEC) else [folder.subfolder(name) for name in shard_names(folder)]
    if folder.path is None or not parts or any(part.has_file(bag_name(REFS)) for part in parts):
        raise ConfigError(
            f"{folder.name!r} cannot be sealed: expected a record dataset, or shards, in a local folder, in the layout of "
            f"Granular 0.22 and later. Convert other datasets with `data-stack convert`"
        )
    n_samples = 0
    for part in parts:
        types = parse_spec(part.read(SPEC), part.full_name(SPEC))
        with RecordWriter(part, types, codecs=dict.fromkeys(types.values())) as writer:  # nothing is encoded
            n_samples += len(writer)
    return n_samples
