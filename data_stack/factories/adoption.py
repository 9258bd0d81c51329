"""Makes a manifest for a complete store without one, as the original DataStack left it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from data_stack.exception import DatasetFileCorruptError, StorageError, describe_error
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.new_manifest import make_manifest
from data_stack.factories.opening_checks import OpeningChecks
from data_stack.factories.resource_names import MANIFEST
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.stored import StoredDataset
from data_stack.io.progress import with_bar
from data_stack.util.logger import logger


class Adoption:
    """Finds a dataset that is complete without a manifest, and makes its manifest.

    Args:
        stored: the dataset in its store.
        factory: the author's.
        progress: show progress bars; None shows them on a terminal.
    """

    #: The dataset in its store.
    _stored: StoredDataset

    #: What the author declares.
    _definition: DatasetDefinition

    #: The name of the dataset, for messages.
    _name: str

    #: Opens the splits.
    _checks: OpeningChecks

    #: Whether to show progress bars; None: on a terminal.
    _progress: bool | None

    def __init__(
        self, stored: StoredDataset, factory: Any, *, progress: bool | None = None
    ) -> None:
        self._stored = stored
        self._definition = stored.definition
        self._name = stored.definition.card.name
        self._checks = OpeningChecks(stored, factory)
        self._progress = progress

    def adopt(self) -> Manifest | None:
        """Make the manifest, and store it if the store can be written.

        Returns:
            The manifest; None if the store is not complete, or damaged.
        """
        if self._definition.prepared_resources is None or self._stored.was_begun():
            return None
        try:
            records = self._records_to_adopt(self._definition.prepared_resources)
            if records is None:
                return None
            for split in self._definition.splits:
                self._checks.read_ends(split, records)
            manifest = make_manifest(
                self._definition, self._sources_to_adopt(), records, seconds=None
            )
            manifest = self._store_adopted(manifest, records)
        # Damaged files make the author's open() fail in any way.
        except Exception as error:  # noqa: BLE001
            logger.warning(
                "dataset %r: complete but damaged in %r (%s); preparing it again",
                self._name,
                self._stored.connector,
                describe_error(error),
            )
            return None
        return manifest

    def _records_to_adopt(self, names: Iterable[str]) -> list[ResourceRecord] | None:
        """Return records of stored resources; None if one is missing."""
        records = []
        for name in names:
            info = self._stored.stat(name)
            if info is None:
                return None
            records.append(ResourceRecord(name, info.size, info.sha256))
        return records

    def _sources_to_adopt(self) -> list[SourceRecord]:
        """Return records of the declared sources, of which nothing is verified."""
        sources = []
        for source in self._definition.sources:
            # Sources need not be kept.
            info = self._stored.stat(source.identifier)
            size = None
            if info is not None:
                size = info.size
            sources.append(
                SourceRecord(
                    identifier=source.identifier,
                    size=size,
                    sha256=source.sha256,
                    md5_sum=source.md5_sum,
                    verified=False,
                    origin=None,
                )
            )
        return sources

    def _store_adopted(self, manifest: Manifest, records: list[ResourceRecord]) -> Manifest:
        """Store a manifest with the digests of what is stored; return it.

        If the store cannot be written, the manifest is returned without these digests.
        """
        try:
            with self._stored.connector.create(self._stored.identifier(MANIFEST)) as file:
                manifest = replace(manifest, prepared=tuple(self._verify(records)))
                file.write(manifest.to_json())
        except StorageError as error:
            logger.info(
                "dataset %r: complete without a manifest; used without one: %s", self._name, error
            )
            return manifest
        logger.info(
            "dataset %r: adopted, as it is complete without a manifest in %r",
            self._name,
            self._stored.connector,
        )
        return manifest

    def _verify(self, records: list[ResourceRecord]) -> Iterator[ResourceRecord]:
        """Yield the records with digests of what is stored."""
        title = f"{self._name}: computing checksums"
        for record in with_bar(records, self._progress, desc=title, unit="resource"):
            identifier = self._stored.identifier(record.identifier)
            try:
                info = self._stored.connector.verify_resource(identifier, record.sha256)
            except StorageError as error:
                # A read error must not look like a store that cannot be written.
                raise DatasetFileCorruptError(str(error)) from error
            yield ResourceRecord(record.identifier, info.size, info.sha256)
