"""Digests of all samples of a dataset, which its store remembers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import json_digest
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.recipes.code_description import describe_code
from data_stack.dataset.recipes.recipe_values import content_if_known
from data_stack.exception import (
    DatasetFileCorruptError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.code_digest import code_digest
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.resource_names import SAMPLE_DIGESTS
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.reproduce.lock_entry import libraries_of
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import MAX_BYTES, JsonObject, seal_json
from data_stack.values.digests import row_digests

#: The name of data_stack on the package index.
_OUR_DISTRIBUTION = "lazy-data-stack"

#: Samples that are read at once.
_BATCH_SIZE = 1024

#: Digests that a store remembers of a dataset; the earliest are forgotten.
_MAX_REMEMBERED = 200


class SampleDigests:
    """The digests of a dataset's samples, which its store remembers.

    A digest is remembered for the stored bytes, the code of the dataset, the libraries that its
    package requires, the split and the options. If one of these changes, or the code cannot be
    compared, the samples are read again. The samples of datasets without manifest, or without
    store, are always read.

    Args:
        name: the name of the dataset, for progress bars.
        factory: the factory of the dataset.
        distribution: the distribution that provides the dataset; None if the program does.
    """

    #: Where digests are remembered; None if the samples are always read.
    _stored: StoredDataset | None

    #: What the samples depend on besides split and options.
    _content: list[Any]

    def __init__(self, name: str, factory: Any, distribution: str | None) -> None:
        self._name = name
        self._stored = None
        self._content = []

        stored = None
        manifest = None
        if isinstance(factory, DatasetFactory):
            stored = factory._find_stored()
            manifest = factory.manifest()
        if stored is None or manifest is None or manifest.digests() is None:
            return
        records = sorted(
            [record.identifier, record.size, record.sha256] for record in manifest.prepared
        )

        # Several classes of one file may have the same name, so the code of ``open`` counts too,
        # with the variables that it uses. The function is described without the factory, which
        # holds a store.
        open_function = getattr(factory.open, "__func__", factory.open)
        code_of_open = describe_code(open_function, content_if_known, follows=False).digest

        self._stored = stored
        self._content = [
            records,
            code_digest(factory),
            code_of_open,
            libraries_of(distribution or _OUR_DISTRIBUTION),
        ]

    def of(
        self, config: Mapping[str, Any], split: str, load: Callable[[], DatasetIteratorIF]
    ) -> dict[str, Any]:
        """Return the number and the digest of the samples of a split.

        Args:
            config: the options of the dataset.
            split: the name of the split; empty for a dataset without splits.
            load: opens the split; called if the store does not remember the digest.

        Returns:
            A dict of ``length``, the number of samples, and ``samples``, their digest.
        """
        key = json_digest([self._content, dict(config), split])
        remembered = self._read_remembered()
        if key in remembered:
            return remembered[key]
        title = f"{self._name}/{split}" if split else self._name
        digests = _digest_samples(load(), title)
        self._remember(key, digests)
        return digests

    def _read_remembered(self) -> dict[str, dict[str, Any]]:
        """Return all digests that the store remembers by key, the latest last.

        If the stored digests are damaged, those before the damage are returned.
        """
        if self._stored is None:
            return {}
        remembered: dict[str, dict[str, Any]] = {}
        try:
            data = self._stored.read(SAMPLE_DIGESTS, MAX_BYTES)
            if data is None:
                return {}
            for split in JsonObject.unseal(data, "notes on samples").objects("splits"):
                remembered[split.hexadecimal("key", 64)] = {
                    "length": split.size("length"),
                    "samples": split.hexadecimal("samples", 64),
                }
        except (DatasetFileCorruptError, StorageError):
            # What was read until then is valid.
            return remembered
        return remembered

    def _remember(self, key: str, digests: Mapping[str, Any]) -> None:
        """Add digests to those that the store remembers; a store that cannot is only logged."""
        if self._stored is None:
            return
        # Another process may have remembered other digests meanwhile.
        remembered = {**self._read_remembered(), key: digests}
        latest = list(remembered.items())[-_MAX_REMEMBERED:]
        splits = [{"key": split_key, **split_digests} for split_key, split_digests in latest]
        try:
            self._stored.write(SAMPLE_DIGESTS, seal_json({"splits": splits}))
        except (StorageError, UnsupportedStorageOperationError) as error:
            logger.info("the store cannot keep digests of samples of %r: %s", self._name, error)


def _digest_samples(iterator: DatasetIteratorIF, title: str) -> dict[str, Any]:
    """Read all samples, and return their number and their digest."""
    n_samples = len(iterator)
    access = access_to(iterator)
    digest = hashlib.sha256()
    starts = range(0, n_samples, _BATCH_SIZE)
    description = f"{title}: reading all samples once, for the lock"
    for start in with_bar(starts, None, desc=description, unit="batch"):
        stop = min(start + _BATCH_SIZE, n_samples)
        batch = access.batch(np.arange(start, stop))
        digest.update(row_digests(batch).tobytes())
    return {"length": n_samples, "samples": digest.hexdigest()}
