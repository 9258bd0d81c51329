"""One dataset in one store, and whether it is complete and intact."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from data_stack.exception import (
    ChecksumMismatchError,
    DamagedBlockError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.journal import Journal
from data_stack.factories.manifest import Manifest
from data_stack.factories.resource_names import JOURNAL, MANIFEST, STAGED
from data_stack.factories.resource_record import ResourceRecord
from data_stack.io.integrity import Fault
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import ResourceInfo, StorageConnector, info_of
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import MAX_BYTES
from data_stack.util.versions import version_key

_MARK = f"{STAGED}mark"
_MARK_BYTES = 200


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a dataset is ready, and why not.

    Attributes:
        manifest: of a ready dataset; None if it is not ready.
        reason: why the stored data cannot be used; None if the dataset is ready, or nothing is stored.
        resumes: whether the next preparation resumes an earlier one.
        is_damaged: whether the dataset was ready, and its resources were damaged or lost since.
    """

    manifest: Manifest | None = None
    reason: str | None = None
    resumes: bool = False
    is_damaged: bool = False


class StoredDataset:
    """The resources, manifest and journal of one dataset in one store.

    Args:
        connector: the store; the three required methods suffice.
        definition: what the dataset should be.

    Attributes:
        outdated: a valid manifest that must be replaced; None if there is no such manifest.
        why_outdated: its damage; None if it is replaced on demand.
    """

    def __init__(self, connector: StorageConnector, definition: DatasetDefinition) -> None:
        self.connector, self.definition, self.folder = connector, definition, definition.folder
        self.outdated: Manifest | None = None
        self.why_outdated: str | None = None

    # ------------------------------------------------------------------ readiness

    def ready_manifest(self) -> Manifest | None:
        """The manifest, if it is valid: then the dataset is ready."""
        manifest = self.manifest()
        return (
            manifest
            if manifest is not None and (self.difference(manifest) or self.damage(manifest)) is None
            else None
        )

    def readiness(self, code: Callable[[], str] | None) -> Readiness:
        """Whether the dataset is ready, and if not, why; may read the journal and list other versions.

        Args:
            code: returns the digest of the author's code; None: a preparation reuses steps of other code too.
        """
        try:
            manifest = self._parse_manifest()
        except DatasetFileCorruptError as error:
            return Readiness(reason=str(error))
        if manifest is not None:
            difference = self.difference(manifest)
            reason = difference or self.damage(manifest)
            is_damaged = reason is not None and (
                difference is None or difference == self.why_outdated
            )
            return Readiness(manifest if reason is None else None, reason, is_damaged=is_damaged)
        if (journal := self.journal()) is not None:
            is_of_others = bool(journal.steps) and code is not None and code() not in journal.codes
            begun = (
                "its preparation has not finished"
                + "; its steps were done by other code" * is_of_others
            )
            return Readiness(reason=begun, resumes=not is_of_others)
        card = self.definition.card
        parts = [each.split("/") for each in self._list(f"{card.name}/")]
        versions = sorted(
            (part[1] for part in parts if len(part) == 3 and part[2] == MANIFEST), key=version_key
        )
        stored = f"stored: {card.name} {', '.join(versions)}; required: {card.version}"
        return Readiness(reason=stored if versions else None)

    def manifest(self) -> Manifest | None:
        """The stored manifest, valid or not; None if it is missing or damaged."""
        with contextlib.suppress(DatasetFileCorruptError):
            return self._parse_manifest()
        return None

    def _parse_manifest(self) -> Manifest | None:
        data = self.read(MANIFEST, MAX_BYTES)  # a longer one is cut, and fails its digest
        return None if data is None else Manifest.from_json(data)

    def difference(self, manifest: Manifest) -> str | None:
        """How a manifest differs from the definition; None if it does not."""
        card = self.definition.card
        if manifest == self.outdated:
            return self.why_outdated or "it must be prepared again"
        if (manifest.name, manifest.version) != (card.name, card.version):
            return (
                f"stored: {manifest.name} {manifest.version}; required: {card.name} {card.version}"
            )
        recorded = {source.identifier: source for source in manifest.sources}
        if recorded.keys() != {source.identifier for source in self.definition.sources}:
            return "it was prepared from other sources"
        for source in self.definition.sources:
            record = recorded[source.identifier]
            promised, found = (
                (source.sha256, record.sha256)
                if source.sha256
                else (source.md5_sum, record.md5_sum)
            )
            if promised not in (None, found) or (
                None not in (source.size, record.size) and source.size != record.size
            ):
                return f"it was prepared from another {source.identifier!r}"
        if not self.definition.has_preprocess and self.definition.sources:
            return None
        missing = set(self.definition.prepared_resources or ()) - {
            record.identifier for record in manifest.prepared
        }
        return f"{min(missing)!r} was not prepared" if missing else None

    # ------------------------------------------------------------------ manifest

    def has_manifest(self) -> bool:
        """Whether there is a manifest, valid or not."""
        return self.connector.has_resource(self.identifier(MANIFEST))

    def invalidate(self) -> None:
        """Remove a manifest before its resources are replaced."""
        try:
            self.delete(MANIFEST)
        except UnsupportedStorageOperationError:
            self.write(MANIFEST, b"{}\n")  # an invalid manifest, so that the store is not adopted

    # ------------------------------------------------------------------ journal

    def journal(self) -> Journal | None:
        """The stored journal; None if it is missing or damaged."""
        try:
            data = self.read(JOURNAL, MAX_BYTES)
            return None if data is None else Journal.from_json(data, self.definition.folder)
        except DatasetFileCorruptError as error:
            logger.info(
                "the preparation of dataset %r starts over: %s", self.definition.card.name, error
            )
            return None

    def was_begun(self) -> bool:
        """Whether there is a manifest or journal, valid or not; then the store is not adopted."""
        return self.has_manifest() or self.connector.has_resource(self.identifier(JOURNAL))

    def write_journal(self, journal: Journal) -> None:
        """Store the journal."""
        self.write(JOURNAL, journal.to_json())

    def remove_journal(self) -> None:
        """Remove the journal of a finished preparation, if possible; it does no harm."""
        with contextlib.suppress(UnsupportedStorageOperationError, StorageError):
            self.delete(JOURNAL)

    # ------------------------------------------------------------------ temporary names

    def open_shards(self, attempt: str) -> str:
        """Accept shards until :meth:`remove_staged`; returns the token of this opening.

        The same attempt, resumed, continues its opening. A mark is stored as long as shards are accepted, and is removed first. A
        task checks the mark after it has stored a resource: if the mark is there, :meth:`remove_staged` will see the resource;
        if not, the task removes the resource itself. So no task leaves resources behind, not even an abandoned one.
        """
        if (self.read(_MARK, _MARK_BYTES) or b"").split(b" ")[0] != attempt.encode():
            self.write(_MARK, f"{attempt} {secrets.token_hex(16)}".encode())
        return (self.read(_MARK, _MARK_BYTES) or b"").decode("ascii", "replace")

    def wants_shards(self, opening: str) -> bool:
        """Whether shards of this opening are still accepted."""
        return self.read(_MARK, _MARK_BYTES) == opening.encode()

    def remove_staged(self) -> None:
        """Remove all resources with temporary names, of any preparation, and accept no more shards."""
        with contextlib.suppress(UnsupportedStorageOperationError):
            self.delete(_MARK)
            staged = self.connector.list_resources(self.identifier(STAGED))
            self.delete(
                _MARK
            )  # a process without a lease may have opened again; its tasks notice before they lose anything
            for identifier in staged:
                with contextlib.suppress(ResourceNotFoundError, StorageError):
                    self.connector.delete_resource(identifier)

    # ------------------------------------------------------------------ resources

    def damage(self, manifest: Manifest) -> str | None:
        """How the store differs from a manifest; None if it does not.

        Reads only resources without a digest in a store that records digests: other programs have changed them.
        """
        return next(
            (fault.problem for fault in self._changes(manifest.prepared, read_touched=True)), None
        )

    def damage_behind(self, error: BaseException | None) -> str | None:
        """The damage of a stored resource that an error, or one of its causes, names; else None."""
        while error is not None:
            if isinstance(error, ChecksumMismatchError) and error.identifier.startswith(
                self.identifier("")
            ):
                return _describe_damage(error)
            error = error.__cause__ or error.__context__
        return None

    def take_over_sources(self) -> None:
        """Copy sources that this store has for another version of the dataset, instead of retrieving them again."""
        wanted = [
            job
            for job in self.definition.retrieval_jobs
            if job.sha256 and not self.connector.has_resource(job.identifier)
        ]
        listed = self._list(f"{self.definition.card.name}/") if wanted else []
        for job in wanted:
            end = job.identifier.removeprefix(self.definition.folder)
            for identifier in listed:
                with contextlib.suppress(DatasetFileCorruptError, ResourceNotFoundError):
                    if (
                        not identifier.endswith(end)
                        or self.connector.stat(identifier).sha256 != job.sha256
                    ):
                        continue
                    with self.connector.get_resource(identifier) as resource:
                        self.connector.set_resource(job.identifier, resource)
                    logger.info(
                        "dataset %r: copied %r from %r",
                        self.definition.card.name,
                        job.identifier,
                        identifier,
                    )
                    break

    def holds(self, record: ResourceRecord, name: str | None = None) -> bool:
        """Whether a resource is unchanged; reads it whole if the store records no digest of it.

        Args:
            record: its size and digest.
            name: its name relative to the dataset; None: that of the record.
        """
        name = record.identifier if name is None else name
        try:
            info = self.stat(name)
            if info is None or _difference(record, info) is not None:
                return False
            if info.sha256 is None:
                self.connector.verify_resource(self.identifier(name), record.sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    def stat(self, name: str) -> ResourceInfo | None:
        """Size and digest of a resource of this dataset; None if it is missing.

        Raises:
            DatasetFileCorruptError: the record of the store is damaged.
        """
        return info_of(self.connector, self.identifier(name))

    def verify(self, manifest: Manifest) -> list[Fault]:
        """Compare the definition and every byte of the store with a manifest; sources need not be kept."""
        difference = self.difference(manifest)
        faults = [] if difference is None else [Fault(self.identifier(MANIFEST), difference)]
        opened, records = (
            {record.identifier for record in manifest.prepared},
            list(manifest.prepared),
        )
        for source in manifest.sources:
            is_kept = source.identifier not in opened and self.connector.has_resource(
                self.identifier(source.identifier)
            )
            if is_kept and source.size is not None:
                records.append(ResourceRecord(source.identifier, source.size, source.sha256))
        faults += self._changes(records)
        reported = {fault.identifier for fault in faults}
        for record in records:
            if self.identifier(record.identifier) not in reported:
                faults += self._check_bytes(self.identifier(record.identifier), record.sha256)
        return faults

    def _list(self, prefix: str) -> list[str]:
        """The resources with a prefix; none if the store cannot list."""
        with contextlib.suppress(UnsupportedStorageOperationError):
            return self.connector.list_resources(prefix)
        return []

    def identifier(self, name: str) -> str:
        """The identifier in the store of a name relative to the dataset."""
        return f"{self.folder}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Store a few bytes under a name relative to the dataset."""
        # As a stream: a connector for the original DataStack iterates it, and iterating bytes yields integers.
        identifier = self.identifier(name)
        self.connector.set_resource(identifier, StreamedResource(identifier, io.BytesIO(data)))

    def read(self, name: str, n_bytes: int) -> bytes | None:
        """The first ``n_bytes`` of the resource of this name relative to the dataset; None if it is missing."""
        identifier = self.identifier(name)
        with contextlib.suppress(ResourceNotFoundError):  # removed in between
            if self.connector.has_resource(identifier):
                with self.connector.get_resource(identifier) as resource:
                    return bytes(resource.read(n_bytes + 1)[:n_bytes])
        return None

    def delete(self, name: str) -> None:
        """Remove the resource of this name relative to the dataset, if it exists.

        Raises:
            UnsupportedStorageOperationError, StorageError: it could not be removed.
        """
        if self.connector.has_resource(self.identifier(name)):
            with contextlib.suppress(ResourceNotFoundError):  # another process was faster
                self.connector.delete_resource(self.identifier(name))

    def _changes(
        self, records: Iterable[ResourceRecord], *, read_touched: bool = False
    ) -> Iterator[Fault]:
        for record in records:
            identifier = self.identifier(record.identifier)
            try:
                info = self.stat(record.identifier)
            except DatasetFileCorruptError as error:
                yield Fault(identifier, _describe_damage(error))
                continue
            problem = "is missing" if info is None else _difference(record, info)
            if problem is not None:
                yield Fault(identifier, f"{identifier!r} {problem}")
            elif (
                read_touched
                and self.connector.knows_digests
                and info is not None
                and info.sha256 is None
            ):
                logger.info(
                    "%r has no recorded digest; reading its %d bytes once", identifier, record.size
                )
                yield from self._check_bytes(identifier, record.sha256)

    def _check_bytes(self, identifier: str, sha256: str | None) -> Iterator[Fault]:
        try:
            self.connector.verify_resource(identifier, sha256)
        except (ChecksumMismatchError, ResourceNotFoundError, StorageError) as error:
            yield Fault(identifier, _describe_damage(error))


def _describe_damage(error: Exception) -> str:
    """What is damaged, without the advice of the error."""
    if not isinstance(error, ChecksumMismatchError):
        return str(error).rstrip(".")
    part = f"block {error.block} of " if isinstance(error, DamagedBlockError) else ""
    return f"{part}{error.identifier!r} is damaged: it has {error.algorithm} {error.actual}, expected {error.expected}"


def _difference(record: ResourceRecord, info: ResourceInfo) -> str | None:
    if info.size != record.size:
        return f"has {info.size:,} bytes, {record.size:,} were prepared"
    if None not in (info.sha256, record.sha256) and info.sha256 != record.sha256:
        return f"has sha256 {info.sha256}, prepared was {record.sha256}"
    return None
