"""What a store holds of one dataset, and whether that is a whole and right one."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from data_stack.dataset.definition import DatasetDefinition
from data_stack.dataset.journal import Journal
from data_stack.dataset.manifest import Manifest, ResourceRecord, SourceRecord
from data_stack.dataset.resource_names import JOURNAL, MANIFEST, STAGED
from data_stack.dataset.strict_json import MAX_BYTES
from data_stack.exception import (
    ChecksumMismatchError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector
from data_stack.util.logger import logger

__all__ = ["Finding", "Readiness", "StoredDataset", "StoredResources"]

_MARK = f"{STAGED}mark"
_MARK_BYTES = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that :meth:`DatasetFactory.verify` has to say about a stored resource.

    Attributes:
        identifier: the resource's name in the store.
        problem: what is wrong with it, in words.
        is_fault: False where it is worth knowing but nothing is wrong (a source that was not kept).
    """

    identifier: str
    problem: str
    is_fault: bool = True


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a dataset is ready, and why not.

    Attributes:
        manifest: what a ready dataset consists of; None: it is not ready.
        reason: why what is stored of it, or begun, cannot be used as it is; None: it is ready, or the store has nothing of it.
        resumes: whether the next preparation goes on where an earlier one stopped.
    """

    manifest: Manifest | None = None
    reason: str | None = None
    resumes: bool = False


class StoredResources:
    """What a store holds below one folder, and whether it is what a manifest says.

    Args:
        connector: the store; the three required methods suffice.
        folder: of a version of a dataset.
    """

    def __init__(self, connector: StorageConnector, folder: str) -> None:
        self.connector, self.folder = connector, folder

    def damage(self, manifest: Manifest) -> str | None:
        """How the store differs from what a manifest lists; None if all is there.

        Nothing is read, but for what a store that knows digests does not know any more: that was touched by other means.
        """
        return next((finding.problem for finding in self._changes(manifest.prepared, read_touched=True)), None)

    def holds(self, record: ResourceRecord, name: str | None = None) -> bool:
        """Whether a resource is still the recorded one; read whole if the store keeps no digest of it.

        Args:
            record: what it should be.
            name: where it lies, relative to the dataset; None: under its own name.
        """
        name = record.identifier if name is None else name
        info = self.stat(name)
        if info is None or _difference(record, info) is not None:
            return False
        if info.sha256 is not None:
            return True
        try:
            self.connector.verify_resource(self.identifier(name), record.sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    def stat(self, name: str) -> ResourceInfo | None:
        """What the store knows of a resource of this dataset; None if it is not there."""
        identifier = self.identifier(name)
        if not self.connector.has_resource(identifier):
            return None
        try:
            return self.connector.stat(identifier)
        except ResourceNotFoundError:  # removed in between
            return None

    def verify(self, manifest: Manifest, deep: bool) -> list[Finding]:
        """Hold all that a manifest lists against the store; ``deep`` reads every byte."""
        findings = list(self._changes(manifest.prepared))
        opened = {record.identifier for record in manifest.prepared}
        kept = [source for source in manifest.sources if source.identifier not in opened]
        findings += self._source_changes(kept)
        if deep:
            reported = {finding.identifier for finding in findings}
            listed = [(record.identifier, record.sha256) for record in manifest.prepared]
            for name, sha256 in [*listed, *((source.identifier, source.sha256) for source in kept)]:
                if self.identifier(name) not in reported:
                    findings += self._check_bytes(self.identifier(name), sha256)
        return findings

    def identifier(self, name: str) -> str:
        """The identifier in the store of a name relative to the dataset."""
        return f"{self.folder}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Store a few bytes under a name relative to the dataset."""
        # As a stream: a connector written for the original iterates what it is given, and bytes give integers.
        identifier = self.identifier(name)
        self.connector.set_resource(identifier, StreamedResource(identifier, io.BytesIO(data)))

    def read(self, name: str, n_bytes: int) -> bytes | None:
        """The first ``n_bytes`` of what is stored under a name relative to the dataset; None if there is nothing."""
        identifier = self.identifier(name)
        if not self.connector.has_resource(identifier):
            return None
        try:
            with self.connector.get_resource(identifier) as resource:
                return bytes(resource.read(n_bytes + 1)[:n_bytes])
        except ResourceNotFoundError:  # removed in between
            return None

    def delete(self, name: str) -> None:
        """Remove what is stored under a name relative to the dataset, if there is something.

        Raises:
            UnsupportedStorageOperationError, StorageError: that is not possible.
        """
        if self.connector.has_resource(self.identifier(name)):
            with contextlib.suppress(ResourceNotFoundError):  # another process was faster
                self.connector.delete_resource(self.identifier(name))

    def _changes(self, records: tuple[ResourceRecord, ...], *, read_touched: bool = False) -> Iterator[Finding]:
        for record in records:
            identifier = self.identifier(record.identifier)
            info = self.stat(record.identifier)
            problem = "is missing" if info is None else _difference(record, info)
            if problem is not None:
                yield Finding(identifier, f"{identifier!r} {problem}")
            elif read_touched and self.connector.knows_digests and info is not None and info.sha256 is None:
                logger.info("%r was copied or changed since it was stored; reading its %d bytes once", identifier, record.size)
                yield from self._check_bytes(identifier, record.sha256)

    def _source_changes(self, sources: list[SourceRecord]) -> Iterator[Finding]:
        for source in sources:
            info = self.stat(source.identifier)
            if info is None:
                yield Finding(self.identifier(source.identifier), "raw not kept", is_fault=False)
            elif source.size is not None:
                problem = _difference(ResourceRecord(source.identifier, source.size, source.sha256), info)
                if problem is not None:
                    yield Finding(self.identifier(source.identifier), f"{self.identifier(source.identifier)!r} {problem}")

    def _check_bytes(self, identifier: str, sha256: str | None) -> Iterator[Finding]:
        try:
            self.connector.verify_resource(identifier, sha256)
        except (ChecksumMismatchError, ResourceNotFoundError, StorageError) as error:
            yield Finding(identifier, str(error))


class StoredDataset(StoredResources):
    """The resources, manifest and journal of one dataset in one store.

    Args:
        connector: the store; the three required methods suffice.
        definition: what the dataset should be.

    Attributes:
        outdated: a manifest that is to be replaced, although it is true; None: no such manifest.
    """

    def __init__(self, connector: StorageConnector, definition: DatasetDefinition) -> None:
        super().__init__(connector, definition.folder)
        self.definition = definition
        self.outdated: Manifest | None = None

    @classmethod
    def find(cls, connector: StorageConnector, definition: DatasetDefinition) -> StoredDataset:
        """The dataset where it lies: below name and version, or below its name alone if it was stored there before.

        That is so if there is a manifest of this version, or all of it without any manifest, as the original DataStack left it.
        """
        stored, card = cls(connector, definition), definition.card
        older = cls(connector, replace(definition, folder=card.name))
        if definition.folder == card.name or stored.has_manifest():
            return stored
        manifest = older.manifest()
        if manifest is not None:
            return older if (manifest.name, manifest.version) == (card.name, card.version) else stored
        declared = definition.prepared_resources
        is_left_by_the_original = (
            declared is not None
            and all(older.stat(name) is not None for name in declared)
            and not older.was_begun()
            and not stored.was_begun()
        )
        return older if is_left_by_the_original else stored

    # ------------------------------------------------------------------ readiness

    def ready_manifest(self) -> Manifest | None:
        """The manifest, if it is there and true: then the dataset is ready, otherwise it is not."""
        return self._find_readiness().manifest

    def readiness(self, code: Callable[[], str] | None) -> Readiness:
        """Whether the dataset is ready; where it is not, the reason may need a look at the journal and at other versions.

        Args:
            code: gives the digest of the author's code; None: steps that other code has done are taken over too.
        """
        held = self._find_readiness()
        return held if held != Readiness() else self._readiness_without_manifest(code)

    def _find_readiness(self) -> Readiness:
        try:
            manifest = self._parse_manifest()
        except DatasetFileCorruptError as error:
            return Readiness(reason=str(error))
        if manifest is None:
            return Readiness()
        reason = self.difference(manifest) or self.damage(manifest)
        return Readiness(manifest) if reason is None else Readiness(reason=reason)

    def _readiness_without_manifest(self, code: Callable[[], str] | None) -> Readiness:
        journal = self.journal()
        if journal is not None:
            begun = "a preparation of it was begun and has not finished"
            if journal.steps and code is not None and code() not in journal.codes:
                return Readiness(reason=f"{begun}; its steps were done by other code than this")
            return Readiness(reason=begun, resumes=True)
        card = self.definition.card
        try:
            listed = self.connector.list_resources(f"{card.name}/")
        except UnsupportedStorageOperationError:
            return Readiness()
        versions = sorted(parts[1] for parts in (each.split("/") for each in listed) if len(parts) == 3 and parts[2] == MANIFEST)
        stored = f"what is stored is {card.name} {', '.join(versions)}, wanted is {card.version}"
        return Readiness(reason=stored if versions else None)

    def manifest(self) -> Manifest | None:
        """The stored manifest, whatever it says; None if there is none that can be read."""
        try:
            return self._parse_manifest()
        except DatasetFileCorruptError:
            return None

    def difference(self, manifest: Manifest) -> str | None:
        """How a manifest is of another dataset than the one defined; None if it is of this one."""
        card = self.definition.card
        if manifest == self.outdated:
            return "it was asked for to be prepared again"
        if (manifest.name, manifest.version) != (card.name, card.version):
            return f"what is stored is {manifest.name} {manifest.version}, wanted is {card.name} {card.version}"
        recorded = {source.identifier: source for source in manifest.sources}
        if recorded.keys() != {source.identifier for source in self.definition.sources}:
            return "it was prepared from other sources"
        for source in self.definition.sources:
            record = recorded[source.identifier]
            promised, found = (source.sha256, record.sha256) if source.sha256 else (source.md5_sum, record.md5_sum)
            if promised not in (None, found) or (None not in (source.size, record.size) and source.size != record.size):
                return f"it was prepared from another {source.identifier!r}"
        if not self.definition.has_preprocess and self.definition.sources:
            return None
        missing = set(self.definition.prepared_resources or ()) - {record.identifier for record in manifest.prepared}
        return f"{min(missing)!r} was not prepared" if missing else None

    def verify(self, manifest: Manifest, deep: bool) -> list[Finding]:
        """Hold all that a manifest lists against the store, and the manifest against the definition."""
        difference = self.difference(manifest)
        findings = [] if difference is None else [Finding(self.identifier(MANIFEST), difference)]
        return findings + super().verify(manifest, deep)

    # ------------------------------------------------------------------ manifest

    def has_manifest(self) -> bool:
        """Whether there is a manifest, true or not."""
        return self.connector.has_resource(self.identifier(MANIFEST))

    def write_manifest(self, manifest: Manifest) -> None:
        """Make the dataset ready, at one stroke."""
        self.write(MANIFEST, manifest.to_json())

    def invalidate(self) -> None:
        """Take an untrue manifest away before what it lists is replaced."""
        if not self.has_manifest():
            return
        try:
            self.connector.delete_resource(self.identifier(MANIFEST))
        except UnsupportedStorageOperationError:
            self.write(MANIFEST, b"{}\n")  # no manifest, and no unmarked store either
        except ResourceNotFoundError:
            pass  # another process was faster

    # ------------------------------------------------------------------ journal

    def journal(self) -> Journal | None:
        """The stored journal; None if there is none that can be read."""
        try:
            data = self.read(JOURNAL, MAX_BYTES)
            return None if data is None else Journal.from_json(data, self.definition.folder)
        except DatasetFileCorruptError as error:
            logger.info("the preparation of dataset %r starts over: %s", self.definition.card.name, error)
            return None

    def was_begun(self) -> bool:
        """Whether a manifest or journal, of any kind, says that data_stack prepared here: then nothing is adopted."""
        return self.has_manifest() or self.connector.has_resource(self.identifier(JOURNAL))

    def write_journal(self, journal: Journal) -> None:
        """Store how far the preparation is."""
        self.write(JOURNAL, journal.to_json())

    def remove_journal(self) -> None:
        """Remove the journal of a preparation that is finished; what cannot be removed does no harm."""
        with contextlib.suppress(UnsupportedStorageOperationError, StorageError):
            self.delete(JOURNAL)

    # ------------------------------------------------------------------ what waits for its own name

    def open_shards(self, attempt: str) -> str:
        """Say that shards are wanted, until :meth:`remove_staged`, and name this opening.

        What an interrupted preparation opened goes on, if it was the same attempt. A mark is there as long as shards are wanted,
        and is the first that goes. A task looks for it after it has stored something: either it was still there, so what was
        stored is among what is removed next; or it was not, and the task takes its own away. So even a task that was given up
        leaves nothing.
        """
        if (self.read(_MARK, _MARK_BYTES) or b"").split(b" ")[0] != attempt.encode():
            self.write(_MARK, f"{attempt} {secrets.token_hex(16)}".encode())
        return (self.read(_MARK, _MARK_BYTES) or b"").decode("ascii", "replace")

    def wants_shards(self, opening: str) -> bool:
        """Whether shards of this opening are still wanted."""
        return self.read(_MARK, _MARK_BYTES) == opening.encode()

    def remove_staged(self) -> None:
        """Remove all that waits for its own name, of whatever preparation; from now on no shard is wanted.

        What cannot be removed does no harm. A store that cannot delete never had anything.
        """
        with contextlib.suppress(UnsupportedStorageOperationError):
            self.delete(_MARK)
            for identifier in self.connector.list_resources(self.identifier(STAGED)):
                with contextlib.suppress(ResourceNotFoundError, StorageError):
                    self.connector.delete_resource(identifier)

    def _parse_manifest(self) -> Manifest | None:
        data = self.read(MANIFEST, MAX_BYTES)  # cut short, it does not have its digest
        return None if data is None else Manifest.from_json(data)


def _difference(record: ResourceRecord, info: ResourceInfo) -> str | None:
    if info.size != record.size:
        return f"has {info.size:,} bytes, {record.size:,} were prepared"
    if None not in (info.sha256, record.sha256) and info.sha256 != record.sha256:
        return f"has sha256 {info.sha256}, prepared was {record.sha256}"
    return None
