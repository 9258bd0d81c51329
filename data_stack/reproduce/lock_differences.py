"""How the datasets of a lock file differ from what is installed and stored here."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from data_stack.codecs.plain_data import canonical_json, json_digest
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
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
from data_stack.io.redaction import shorten
from data_stack.repository.missing_datasets import advise_install
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import MAX_BYTES, JsonObject, seal_json
from data_stack.values.digests import row_digests

#: What to do about damaged prepared files.
ADVICE = "Prepare it again (`data-stack lock restore`, or `data-stack prepare NAME --again`), or copy it from an intact store"
UNPREPARED = "it is not prepared here; `data-stack lock restore` prepares it"

_ROWS_AT_ONCE = 1024


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
        self._name, self._stored, self._content = name, None, list[Any]()
        stored: StoredDataset | None = (
            factory._find_stored() if isinstance(factory, DatasetFactory) else None
        )
        manifest = None if stored is None else factory.manifest()
        records = (
            []
            if manifest is None
            else sorted([each.identifier, each.size, each.sha256] for each in manifest.prepared)
        )
        code = code_digest(factory) if records and all(sha256 for *_, sha256 in records) else None
        if code is not None:
            self._stored = stored
            # The code of ``open`` with the variables that it uses: several classes of one file may have the same name.
            opened_by = getattr(
                factory.open, "__func__", factory.open
            )  # not with the store of a factory
            opener = describe_code(opened_by, content_if_known, follows=False).digest
            self._content = [records, code, opener, libraries_of(distribution or "lazy-data-stack")]

    def of(
        self, config: Mapping[str, Any], split: str, load: Callable[[], DatasetIteratorIF]
    ) -> dict[str, Any]:
        """``length`` and ``samples``, the digest, of a split: the remembered one, or else that of all samples.

        Args:
            config: the options.
            split: its name.
            load: opens the split, if its samples must be read.
        """
        key = json_digest([self._content, dict(config), split])
        if (known := self._notes().get(key)) is not None:
            return known
        iterator, title = load(), f"{self._name}/{split}" if split else self._name
        digest, samples, title = (
            hashlib.sha256(),
            access_to(iterator),
            f"{title}: reading all samples once, for the lock",
        )
        for start in with_bar(
            range(0, len(iterator), _ROWS_AT_ONCE), None, desc=title, unit="batch"
        ):
            digest.update(
                row_digests(
                    samples.batch(np.arange(start, min(start + _ROWS_AT_ONCE, len(iterator))))
                ).tobytes()
            )
        found = {"length": len(iterator), "samples": digest.hexdigest()}
        if self._stored is not None:
            latest = [*self._notes().items(), (key, found)][-200:]
            try:
                self._stored.write(
                    SAMPLE_DIGESTS,
                    seal_json({"splits": [{"key": key, **each} for key, each in latest]}),
                )
            except (StorageError, UnsupportedStorageOperationError) as error:
                logger.info("the store cannot keep digests of samples of %r: %s", self._name, error)
        return found

    def _notes(self) -> dict[str, dict[str, Any]]:
        """All remembered digests, the latest last."""
        notes: dict[str, dict[str, Any]] = {}
        with suppress(DatasetFileCorruptError, StorageError):
            data = (
                self._stored.read(SAMPLE_DIGESTS, MAX_BYTES) if self._stored is not None else None
            )
            for each in (
                JsonObject.unseal(data, "notes on samples").objects("splits")
                if data is not None
                else ()
            ):
                notes[each.hexadecimal("key", 64)] = {
                    "length": each.size("length"),
                    "samples": each.hexadecimal("samples", 64),
                }
        return notes


def libraries_of(distribution: str | None) -> list[str] | None:
    """data_stack and the distributions that a plugin requires, with their versions; None for a dataset without plugin."""
    if distribution is None:
        return None
    names = {"lazy-data-stack"}
    with suppress(importlib.metadata.PackageNotFoundError):
        required = importlib.metadata.requires(distribution) or ()
        names |= {
            re.split(r"[^\w.-]", each, maxsplit=1)[0].lower()
            for each in required
            if "extra ==" not in each
        }
    found = []
    for name in sorted(names):
        with suppress(importlib.metadata.PackageNotFoundError):  # of another platform
            found.append(f"{name} {importlib.metadata.version(name)}")
    return found


class Difference(NamedTuple):
    """A difference from the lock.

    Attributes:
        name: of the dataset or stack.
        what: ``"plugin"``, ``"version"``, ``"source"``, ``"preparation"``, ``"samples"`` or ``"stack"``.
        message: what differs, and what to do.
        is_harmless: the samples are equal all the same.
    """

    name: str
    what: str
    message: str
    is_harmless: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


def differing_sources(name: str, locked: Any, factory: Any) -> Iterator[Difference]:
    """The sources of a lock file that the factory does not declare, or with another digest."""
    declared = {each["identifier"]: each for each in sources_of(factory)}
    for source in locked:
        now = declared.get(source.get("identifier"))
        if now is None or any(
            now.get(key) != source[key] for key in ("sha256", "md5_sum") if key in source
        ):
            problem = (
                "is no longer declared"
                if now is None
                else f"has another digest, {now.get('sha256') or now.get('md5_sum')}"
            )
            message = f"source {source.get('identifier')!r:.120} {problem}, in the plugin that is installed here"
            yield Difference(name, "source", message)


def differing_samples(
    name: str,
    entry: Mapping[str, Any],
    dataset: Any,
    *,
    compares_equal_bytes: bool,
    only: tuple[Any, str | None] | None = None,
) -> Iterator[Difference]:
    """Compare the samples with the digests of a lock file.

    Args:
        name: of the dataset.
        entry: of the lock file.
        dataset: resolved, and ready.
        compares_equal_bytes: whether to compare them where the prepared bytes are those of the lock.
        only: compare only these options and this split (None: all splits), if the lock file has them.
    """
    distribution = dataset.distribution
    same_bytes = prepared_of(dataset.factory) == entry.get("prepared")
    if same_bytes and entry.get("prepared") and not compares_equal_bytes:
        return
    digests, known = SampleDigests(name, dataset.factory, distribution), dataset.splits or ("",)
    differing = []
    try:
        for config, locked, splits in _wanted(entry["configurations"], known, only):
            options = (
                f" ({', '.join(f'{key}={value!r:.40}' for key, value in config.items())})"
                if config
                else ""
            )
            for split in splits:
                load = functools.partial(dataset.load, split or None, **config)
                if locked.get(split) != (
                    digests.of(config, split, load) if split in known else None
                ):
                    differing.append(f"{split!r}{options}")
    except DatasetFileCorruptError as error:
        yield Difference(name, "preparation", f"its samples cannot be read: {error} {ADVICE}")
        return
    if same_bytes and not differing:
        return
    then, now = set(entry.get("libraries") or ()), set(libraries_of(distribution) or ())
    here, there = (", ".join(sorted(each)) for each in (now - then, then - now))
    libraries = f"; libraries here: {here}, then: {there}" if now and there else ""
    if differing:
        although = (
            ", although the prepared bytes are equal"
            if same_bytes and entry.get("prepared")
            else ""
        )
        made_by = f"{dataset.package or 'this program'} made them here, {entry.get('plugin', 'another program')}"
        message = (
            f"the samples of {', '.join(differing)} differ from those in the lock{although} ({made_by} then{libraries}). "
            f"{advise_code(entry)}; or see what changed with `data-stack diff`, and renew the lock with `data-stack lock add`"
        )
        yield Difference(name, "samples", message)
    else:
        message = f"the prepared bytes differ from those in the lock, but all samples are equal{libraries}"
        yield Difference(name, "preparation", message, is_harmless=True)


def _wanted(
    configurations: Iterable[Mapping[str, Any]],
    splits: Iterable[str],
    only: tuple[Any, str | None] | None,
) -> list[tuple[Mapping[str, Any], Mapping[str, Any], list[str]]]:
    """Options, locked digests by split, and the splits to compare."""
    every = [
        (each["config"], each["splits"], sorted({*each["splits"], *splits}))
        for each in configurations
    ]
    if only is None:
        return every
    chosen = [each for each in every if canonical_json(each[0]) == canonical_json(only[0])]
    if chosen and only[1] is not None and "" not in chosen[0][1]:
        return [(chosen[0][0], chosen[0][1], [only[1]])]
    return chosen or every


def advise_code(entry: Mapping[str, Any]) -> str:
    """How to get the code that the lock file names."""
    distribution, _, version = str(entry.get("plugin", "")).partition(" ")
    if not distribution:
        return "Register the dataset with its earlier code"
    advice = "if it is installed, its code or a library has changed: restore these, and give changed code another version"
    return f"To get it: {advise_install(f'{distribution} {version}')}; {advice}"


def sources_of(factory: Any) -> list[dict[str, Any]]:
    """The declared sources of a dataset, as a lock file lists them."""
    found = []
    for source in sorted(
        factory.sources if isinstance(factory, DatasetFactory) else (),
        key=lambda each: each.identifier,
    ):
        fields = {key: getattr(source, key) for key in ("identifier", "size", "sha256", "md5_sum")}
        known = {key: value for key, value in fields.items() if value is not None}
        found.append({**known, "sources": [shorten(os.fsdecode(each)) for each in source.sources]})
    return found


def prepared_of(factory: Any) -> list[dict[str, Any]]:
    """The prepared resources of a dataset, as a lock file lists them; empty if it is not ready or has no manifest."""
    manifest = factory.manifest() if isinstance(factory, DatasetFactory) else None
    records = (
        [] if manifest is None else sorted(manifest.prepared, key=lambda each: each.identifier)
    )
    return [
        {"identifier": each.identifier, "size": each.size, "sha256": each.sha256 or ""}
        for each in records
    ]
