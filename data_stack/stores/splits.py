"""Stores which samples of a dataset are in which part."""

from __future__ import annotations

import io
from typing import Any

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.splits.saved_splits import SavedSplits
from data_stack.exception import ConfigError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.repository.default_storage import Storage, as_storage_connector


def save_splits(
    storage: Storage,
    identifier: str,
    splits: Any,
    *,
    iterator: DatasetIteratorIF | None = None,
    replace: bool = False,
) -> SavedSplits:
    """Store which samples are in which part, as a JSON resource for :func:`load_splits`.

    ::

        parts = iterator.split({"train": 0.8, "val": 0.2}, stratify=True)
        save_splits("experiments", "digits/splits.json", parts)
        parts = load_splits("experiments", "digits/splits.json", iterator)

    The positions of the samples are stored: those of a part in the dataset's order take one bit
    for each sample of the dataset.

    Args:
        storage: a connector, or the path or URL of a store. The write is atomic.
        identifier: its name there, e.g. ``"digits/splits.json"``.
        splits: the result of ``iterator.split``, ``iterator.folds`` or a splitter, or any views of
            one iterator, in nested lists, tuples and dicts.
        iterator: what the parts are views of, directly or through other views; None for what they
            were directly made from.
        replace: whether to replace other splits with the same identifier.

    Returns:
        What was stored.

    Raises:
        ConfigError: ``splits`` are something else, or other splits are stored under that name.
        DatasetFileCorruptError: the stored splits are damaged, and ``replace`` is false.
        StorageError: they could not be written.
    """
    connector = as_storage_connector(storage)
    saved = SavedSplits.of(splits, iterator)
    if not replace and connector.has_resource(identifier):
        if _read(connector, identifier) == saved:
            return saved
        raise ConfigError(
            f"other splits are stored as {identifier!r} already; choose another name, "
            f"or pass replace=True"
        )
    # As a stream: legacy connectors iterate their argument, and iterating bytes yields integers.
    connector.set_resource(identifier, StreamedResource(identifier, io.BytesIO(saved.to_json())))
    return saved


def load_splits(storage: Storage, identifier: str, iterator: DatasetIteratorIF) -> Any:
    """Return the parts that :func:`save_splits` stored, as views of ``iterator``.

    They are arranged as they were. If the iterator has a meta, the ``dataset_tag`` of a named part
    is its name, see :class:`SplitPartIterator`.

    Args:
        storage: a connector, or the path or URL of a store.
        identifier: the name of the splits there.
        iterator: the dataset that was divided, with the same fingerprint.

    Raises:
        ConfigError: ``iterator`` is another dataset than the one that was divided.
        DatasetFileCorruptError: the stored splits are damaged, or of an earlier format.
        ResourceNotFoundError: nothing is stored under that name.
    """
    saved = _read(as_storage_connector(storage), identifier)
    return saved.apply_to(iterator)


def _read(connector: StorageConnector, identifier: str) -> SavedSplits:
    """Return stored splits.

    Raises:
        DatasetFileCorruptError: they are damaged, or of an earlier format.
    """
    with connector.get_resource(identifier) as resource:
        data = bytes(resource.read())
    return SavedSplits.from_json(data, identifier)
