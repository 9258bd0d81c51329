"""Digests of all samples of a split, computed once for each version of stored bytes and code."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.recipes.functions import code_content
from data_stack.dataset.recipes.recipe_values import content_if_known
from data_stack.exception import DatasetFileCorruptError, StorageError, UnsupportedStorageOperationError
from data_stack.factories.code_digest import code_digest
from data_stack.factories.declarative import DatasetFactory
from data_stack.factories.manifest import SAMPLE_DIGESTS
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.util.logger import logger
from data_stack.values.digests import row_digests
from data_stack.values.strict_json import MAX_BYTES, JsonObject, seal_json

SplitDigest: TypeAlias = dict[str, Any]
"""``length`` of a split, and ``samples``: the digest of all its samples."""

_ROWS_AT_ONCE = 1024
#: Splits and configurations of the last few versions of the code.
_MAX_NOTES = 200


class SampleDigests:
    """The digests of a dataset's samples, which its store remembers.

    A digest is remembered for the stored bytes, the code of the dataset, the libraries that its package requires, the split and
    the options. If one of these changes, or the code cannot be compared, the samples are read again. Datasets without
    manifest, or without store, are always read.

    Args:
        name: of the dataset, for progress bars.
        factory: of the dataset.
        distribution: that provides it; None for one of the program itself.
    """

    def __init__(self, name: str, factory: Any, distribution: str | None) -> None:
        self._name, self._stored = name, factory._find_stored() if isinstance(factory, DatasetFactory) else None
        manifest = None if self._stored is None else factory.manifest()
        records = [[each.identifier, each.size, each.sha256] for each in manifest.prepared] if manifest is not None else []
        code = code_digest(factory) if all(sha256 for *_, sha256 in records) and records else None
        if code is None or self._stored is None:
            self._stored = None
            return
        # The code of ``open`` with the variables that it uses: several classes of one file may have the same name.
        self._content = [
            sorted(records),
            code,
            code_content(factory.open, content_if_known),
            libraries_of(distribution or "datastack"),
        ]

    def of(self, config: Mapping[str, Any], split: str, load: Callable[[], DatasetIteratorIF]) -> SplitDigest:
        """The digest of a split: the remembered one, or else that of all samples.

        Args:
            config: the options.
            split: its name.
            load: opens the split, if its samples must be read.
        """
        known = self._notes().get(self._key(config, split)) if self._stored is not None else None
        if known is not None:
            return known
        iterator, title = load(), f"{self._name}/{split}" if split else self._name
        digest = _digest_samples(iterator, f"{title}: reading all samples once, for the lock")
        found = {"length": len(iterator), "samples": digest}
        if self._stored is not None:
            self._remember(self._stored, self._key(config, split), found)
        return found

    def _key(self, config: Mapping[str, Any], split: str) -> str:
        return hashlib.sha256(canonical_json([self._content, dict(config), split]).encode()).hexdigest()

    def _notes(self) -> dict[str, SplitDigest]:
        """All remembered digests, the latest last."""
        notes: dict[str, SplitDigest] = {}
        with suppress(DatasetFileCorruptError, StorageError):
            data = self._stored.read(SAMPLE_DIGESTS, MAX_BYTES) if self._stored is not None else None
            fields = JsonObject.unseal(data, "notes on samples") if data is not None else None
            for each in fields.objects("splits") if fields is not None else ():
                notes[each.hexadecimal("key", 64)] = {"length": each.size("length"), "samples": each.hexadecimal("samples", 64)}
        return notes

    def _remember(self, stored: StoredDataset, key: str, found: SplitDigest) -> None:
        notes = self._notes()
        notes.pop(key, None)
        latest = [*notes.items(), (key, found)][-_MAX_NOTES:]
        try:
            stored.write(SAMPLE_DIGESTS, seal_json({"splits": [{"key": key, **each} for key, each in latest]}))
        except (StorageError, UnsupportedStorageOperationError) as error:
            logger.info("the store cannot keep digests of samples of %r: %s", self._name, error)


def libraries_of(distribution: str | None) -> list[str] | None:
    """data_stack and the distributions that a plugin requires, with their versions; None for a dataset without plugin."""
    if distribution is None:
        return None
    names = {"datastack"}
    with suppress(importlib.metadata.PackageNotFoundError):
        required = importlib.metadata.requires(distribution) or ()
        names |= {re.split(r"[^\w.-]", each, maxsplit=1)[0].lower() for each in required if "extra ==" not in each}
    found = []
    for name in sorted(names):
        with suppress(importlib.metadata.PackageNotFoundError):  # of another platform
            found.append(f"{name} {importlib.metadata.version(name)}")
    return found


def _digest_samples(iterator: DatasetIteratorIF, title: str) -> str:
    """SHA-256 of the digests of all samples, in order."""
    digest, samples = hashlib.sha256(), access_to(iterator)
    for start in with_bar(range(0, samples.n_samples, _ROWS_AT_ONCE), None, desc=title, unit="batch"):
        digest.update(row_digests(samples.batch(np.arange(start, min(start + _ROWS_AT_ONCE, samples.n_samples)))).tobytes())
    return digest.hexdigest()
