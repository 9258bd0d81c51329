"""One dataset in one store, and whether it is complete and intact."""

from __future__ import annotations

import contextlib
import io
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

from data_stack.exception import (
    ChecksumMismatchError,
    DamagedBlockError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.journal import Journal, fingerprint
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.opening_files import (
    MAX_FILE_BYTES,
    MAX_TOTAL_BYTES,
    OpeningFiles,
    may_have_opening_files,
)
from data_stack.factories.readiness import Readiness, difference_from_definition
from data_stack.factories.ready_resources import ReadyResources, is_checked_when_read
from data_stack.factories.resource_names import JOURNAL, MANIFEST, OPENING_FILES, STAGED
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.resources import Resources
from data_stack.io.integrity import Fault
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import (
    ResourceInfo,
    StorageConnector,
    info_of,
    read_if_stored,
)
from data_stack.util.logger import logger
from data_stack.util.untrusted_text import MAX_BYTES
from data_stack.util.versions import version_key

#: The resource with the token of the current opening, see :meth:`StoredDataset.open_shards`. It
#: exists as long as shards are accepted.
_OPENING = f"{STAGED}mark"

#: More than a token takes, which has 64 and 32 digits, and a space.
_MAX_OPENING_BYTES = 200


class StoredDataset:
    """The resources, manifest and journal of one dataset in one store.

    Names of resources are relative to the folder of the dataset.

    Args:
        connector: the store; the three required methods suffice.
        definition: what the dataset should be.
    """

    #: The store.
    connector: StorageConnector

    #: What the dataset should be.
    definition: DatasetDefinition

    #: The folder of the dataset in the store.
    folder: str

    #: A valid manifest that must be replaced; None if there is no such manifest.
    outdated: Manifest | None

    #: The damage of the outdated manifest's resources; None if it is replaced on demand.
    why_outdated: str | None

    def __init__(self, connector: StorageConnector, definition: DatasetDefinition) -> None:
        self.connector = connector
        self.definition = definition
        self.folder = definition.folder
        self.outdated = None
        self.why_outdated = None

    # ------------------------------------------------------------------------------- readiness

    def ready_manifest(self) -> Manifest | None:
        """Return the manifest, if it is valid: then the dataset is ready."""
        manifest = self.manifest()
        if manifest is None:
            return None
        if self.difference(manifest) is not None or self.damage(manifest) is not None:
            return None
        return manifest

    def manifest_to_open(self) -> Manifest | None:
        """Return the manifest of a dataset that can be opened by it alone.

        The store notices when a resource is read that it was lost or replaced. So the manifest,
        which was stored last, is all that is requested.

        Returns:
            The manifest; None if the dataset is not ready, or if only :meth:`ready_manifest` can
            tell.
        """
        if not is_checked_when_read(self.connector):
            return None
        manifest = self.manifest()
        if manifest is None or self.difference(manifest) is not None:
            return None
        return manifest

    def resources(self, records: Iterable[ResourceRecord]) -> Resources:
        """Return the resources of a ready dataset, as ``open()`` reads them."""
        if is_checked_when_read(self.connector):
            return ReadyResources(self.connector, self.folder, records)
        return Resources(self.connector, self.folder, records)

    def readiness(self, code: Callable[[], str] | None) -> Readiness:
        """Return whether the dataset is ready, and if not, why.

        It may read the journal and list other versions.

        Args:
            code: returns the digest of the author's code; None: a preparation reuses steps of
                other code too.
        """
        try:
            manifest = self._parse_manifest()
        except DatasetFileCorruptError as error:
            return Readiness(reason=str(error))
        if manifest is not None:
            return self._readiness_of(manifest)
        journal = self.journal()
        if journal is not None:
            return _readiness_of_journal(journal, code)
        return Readiness(reason=self._describe_other_versions())

    def _readiness_of(self, manifest: Manifest) -> Readiness:
        difference = self.difference(manifest)
        if difference is not None:
            is_damaged = difference == self.why_outdated
            return Readiness(reason=difference, is_damaged=is_damaged)
        damage = self.damage(manifest)
        if damage is not None:
            return Readiness(reason=damage, is_damaged=True)
        return Readiness(manifest)

    def _describe_other_versions(self) -> str | None:
        """Return which versions are stored, and which is required; None if none is stored."""
        card = self.definition.card
        versions = []
        for identifier in self._list(f"{card.name}/"):
            segments = identifier.split("/")
            if len(segments) == 3 and segments[2] == MANIFEST:
                versions.append(segments[1])
        if not versions:
            return None
        versions.sort(key=version_key)
        return f"stored: {card.name} {', '.join(versions)}; required: {card.version}"

    def difference(self, manifest: Manifest) -> str | None:
        """Return how a manifest differs from the definition; None if it does not."""
        if manifest == self.outdated:
            return self.why_outdated or "this was asked for (again=True, --again)"
        return difference_from_definition(manifest, self.definition)

    # -------------------------------------------------------------------------------- manifest

    def manifest(self) -> Manifest | None:
        """Return the stored manifest, valid or not; None if it is missing or damaged."""
        try:
            return self._parse_manifest()
        except DatasetFileCorruptError:
            return None

    def _parse_manifest(self) -> Manifest | None:
        # A longer manifest is cut, and fails its digest.
        data = self.read(MANIFEST, MAX_BYTES)
        if data is None:
            return None
        return Manifest.from_json(data)

    def has_manifest(self) -> bool:
        """Return whether there is a manifest, valid or not."""
        return self.connector.has_resource(self.identifier(MANIFEST))

    def invalidate(self) -> None:
        """Remove a manifest before its resources are replaced."""
        try:
            self.delete(MANIFEST)
        except UnsupportedStorageOperationError:
            # An invalid manifest, so that the store is not adopted.
            self.write(MANIFEST, b"{}\n")

    # --------------------------------------------------------------------------- opening files

    def write_opening_files(
        self, records: Sequence[ResourceRecord], names_read: Iterable[str]
    ) -> None:
        """Store the small files that ``open()`` has read once more, together.

        See :class:`~data_stack.factories.opening_files.OpeningFiles`. If there are none, an older
        copy is removed.

        Args:
            records: the prepared resources.
            names_read: the names of those that ``open()`` has read.
        """
        contents: dict[str, bytes] = {}
        if may_have_opening_files(records):
            contents = self._read_small_files(names_read)
        if contents:
            self.write(OPENING_FILES, OpeningFiles(contents).to_bytes())
            return
        with contextlib.suppress(UnsupportedStorageOperationError):
            self.delete(OPENING_FILES)

    def _read_small_files(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the contents of those resources that are small, up to a size of all together."""
        contents: dict[str, bytes] = {}
        n_bytes = 0
        for name in names:
            content = self.read(name, MAX_FILE_BYTES + 1)
            if content is None or len(content) > MAX_FILE_BYTES:
                continue
            n_bytes += len(content)
            if n_bytes > MAX_TOTAL_BYTES:
                break
            contents[name] = content
        return contents

    # --------------------------------------------------------------------------------- journal

    def journal(self) -> Journal | None:
        """Return the stored journal; None if it is missing or damaged."""
        try:
            data = self.read(JOURNAL, MAX_BYTES)
            if data is None:
                return None
            return Journal.from_json(data, self.folder)
        except DatasetFileCorruptError as error:
            logger.info(
                "the preparation of dataset %r starts over: %s", self.definition.card.name, error
            )
            return None

    def journal_fingerprint(self, sources: Iterable[SourceRecord]) -> str:
        """Return the fingerprint that a journal of this dataset and these sources has."""
        card = self.definition.card
        return fingerprint(card.name, card.version, self.definition.factory, sources)

    def was_begun(self) -> bool:
        """Return whether there is a manifest or journal, valid or not.

        If so, the store is not adopted.
        """
        return self.has_manifest() or self.connector.has_resource(self.identifier(JOURNAL))

    def write_journal(self, journal: Journal) -> None:
        """Store the journal."""
        self.write(JOURNAL, journal.to_json())

    def remove_journal(self) -> None:
        """Remove the journal of a finished preparation, if possible; it does no harm."""
        with contextlib.suppress(UnsupportedStorageOperationError, StorageError):
            self.delete(JOURNAL)

    # ------------------------------------------------------------------------- temporary names

    def open_shards(self, attempt: str) -> str:
        """Accept shards until :meth:`remove_staged`, and return the token of this opening.

        The same attempt, resumed, continues its opening. The token is stored as long as shards are
        accepted, and is removed first. A task checks the token after it has stored a resource: if
        the token is there, :meth:`remove_staged` will see the resource; if not, the task removes
        the resource itself. So no task leaves resources behind, not even an abandoned one.

        Args:
            attempt: ID of the attempt at the preparation, see :attr:`Journal.attempt`.

        Returns:
            The attempt and 32 random digits, separated by a space; empty, so that no shard is
            accepted, if another process has removed the token already.
        """
        stored_token = self._read_opening() or ""
        stored_attempt = stored_token.partition(" ")[0]
        if stored_attempt != attempt:
            token = f"{attempt} {secrets.token_hex(16)}"
            self.write(_OPENING, token.encode("ascii"))
        # Read again: another process that works without a lease may have stored its own token
        # meanwhile. The stored token counts.
        return self._read_opening() or ""

    def wants_shards(self, opening: str) -> bool:
        """Return whether shards of this opening are still accepted.

        Args:
            opening: the token that :meth:`open_shards` returned.
        """
        return self._read_opening() == opening

    def _read_opening(self) -> str | None:
        """Return the stored token; None while no shards are accepted."""
        data = self.read(_OPENING, _MAX_OPENING_BYTES)
        if data is None:
            return None
        return data.decode("ascii", "replace")

    def remove_staged(self) -> None:
        """Remove all resources with temporary names, of any preparation; accept no more shards."""
        with contextlib.suppress(UnsupportedStorageOperationError):
            self.delete(_OPENING)
            staged_identifiers = self.connector.list_resources(self.identifier(STAGED))
            # A process without a lease may have opened again; its tasks notice before they lose
            # anything.
            self.delete(_OPENING)
            for identifier in staged_identifiers:
                with contextlib.suppress(ResourceNotFoundError, StorageError):
                    self.connector.delete_resource(identifier)

    # ------------------------------------------------------------------------ damage and loss

    def damage(self, manifest: Manifest) -> str | None:
        """Return how the store differs from a manifest; None if it does not.

        Only resources without a digest, in a store that records digests, are read: other programs
        have changed them.
        """
        faults = self._changes(manifest.prepared, reads_undigested=True)
        first_fault = next(faults, None)
        if first_fault is None:
            return None
        return first_fault.problem

    def damage_behind(self, error: BaseException | None) -> str | None:
        """Return the damage of a stored resource that an error, or one of its causes, names.

        Returns:
            The damage; None if no resource of this dataset is named.
        """
        # An error may be its own cause: `raise error from error`.
        seen_ids = set[int]()
        while error is not None and id(error) not in seen_ids:
            seen_ids.add(id(error))
            if isinstance(error, ChecksumMismatchError):
                is_of_dataset = error.identifier.startswith(f"{self.folder}/")
                if is_of_dataset:
                    return _describe_damage(error)
            error = error.__cause__ or error.__context__
        return None

    def holds(self, record: ResourceRecord, name: str | None = None) -> bool:
        """Return whether a resource is unchanged.

        It is read whole if the store records no digest of it.

        Args:
            record: its size and digest.
            name: its name; None: that of the record.
        """
        if name is None:
            name = record.identifier
        try:
            info = self.stat(name)
            if info is None or _difference(record, info) is not None:
                return False
            if info.sha256 is None:
                self.connector.verify_resource(self.identifier(name), record.sha256)
        except (DatasetFileCorruptError, ResourceNotFoundError):
            return False
        return True

    def verify(self, manifest: Manifest) -> list[Fault]:
        """Compare the definition and every byte of the store with a manifest.

        Sources need not be kept.
        """
        faults = []
        difference = self.difference(manifest)
        if difference is not None:
            faults.append(Fault(self.identifier(MANIFEST), difference))

        # Compare sizes and recorded digests, then the bytes of what seems intact.
        records = [*manifest.prepared, *self._kept_sources(manifest)]
        faults.extend(self._changes(records))
        faulty_identifiers = {fault.identifier for fault in faults}
        for record in records:
            identifier = self.identifier(record.identifier)
            if identifier not in faulty_identifiers:
                faults.extend(self._check_bytes(identifier, record.sha256))
        return faults

    def _kept_sources(self, manifest: Manifest) -> list[ResourceRecord]:
        """Return records of the sources that are still stored and that ``open`` does not read."""
        prepared_names = {record.identifier for record in manifest.prepared}
        records = []
        for source in manifest.sources:
            if source.identifier in prepared_names or source.size is None:
                continue
            if self.connector.has_resource(self.identifier(source.identifier)):
                records.append(ResourceRecord(source.identifier, source.size, source.sha256))
        return records

    def _changes(
        self, records: Iterable[ResourceRecord], *, reads_undigested: bool = False
    ) -> Iterator[Fault]:
        """Yield how stored resources differ from their records in size or digest.

        Args:
            records: the records of the resources.
            reads_undigested: whether to read a resource that has no digest though the store records
                digests.
        """
        for record in records:
            identifier = self.identifier(record.identifier)
            try:
                info = self.stat(record.identifier)
            except DatasetFileCorruptError as error:
                yield Fault(identifier, _describe_damage(error))
                continue
            if info is None:
                yield Fault(identifier, f"{identifier!r} is missing")
                continue
            difference = _difference(record, info)
            if difference is not None:
                yield Fault(identifier, f"{identifier!r} {difference}")
                continue
            if reads_undigested and info.sha256 is None and self.connector.knows_digests:
                logger.info(
                    "%r has no recorded digest; reading its %d bytes once", identifier, record.size
                )
                yield from self._check_bytes(identifier, record.sha256)

    def _check_bytes(self, identifier: str, sha256: str | None) -> Iterator[Fault]:
        try:
            self.connector.verify_resource(identifier, sha256)
        except (ChecksumMismatchError, ResourceNotFoundError, StorageError) as error:
            yield Fault(identifier, _describe_damage(error))

    # ------------------------------------------------------------------------------- resources

    def take_over_sources(self) -> None:
        """Copy sources that the store has for another version of the dataset.

        They need not be retrieved again.
        """
        missing_sources = []
        for source in self.definition.retrieval_jobs:
            if source.sha256 and not self.connector.has_resource(source.identifier):
                missing_sources.append(source)
        if not missing_sources:
            return
        stored_identifiers = self._list(f"{self.definition.card.name}/")
        for source in missing_sources:
            self._copy_from_another_version(source.identifier, source.sha256, stored_identifiers)

    def _copy_from_another_version(
        self, identifier: str, sha256: str | None, stored_identifiers: Iterable[str]
    ) -> None:
        """Copy a resource from the first of these identifiers that has its name and digest."""
        name_with_slash = identifier.removeprefix(self.folder)
        for other_identifier in stored_identifiers:
            if not other_identifier.endswith(name_with_slash):
                continue
            try:
                if self.connector.stat(other_identifier).sha256 != sha256:
                    continue
                with self.connector.get_resource(other_identifier) as resource:
                    self.connector.set_resource(identifier, resource)
            except (DatasetFileCorruptError, ResourceNotFoundError):
                continue
            logger.info(
                "dataset %r: copied %r from %r",
                self.definition.card.name,
                identifier,
                other_identifier,
            )
            return

    def identifier(self, name: str) -> str:
        """Return the identifier in the store of a name."""
        return f"{self.folder}/{name}"

    def stat(self, name: str) -> ResourceInfo | None:
        """Return size and digest of a resource; None if it is missing.

        Raises:
            DatasetFileCorruptError: the record of the store is damaged.
        """
        return info_of(self.connector, self.identifier(name))

    def read(self, name: str, n_bytes: int) -> bytes | None:
        """Return the first ``n_bytes`` of a resource; None if it is missing."""
        return read_if_stored(self.connector, self.identifier(name), n_bytes)

    def write(self, name: str, data: bytes) -> None:
        """Store a few bytes under a name."""
        identifier = self.identifier(name)
        # As a stream: a connector for the original DataStack iterates it, and iterating bytes
        # yields integers.
        self.connector.set_resource(identifier, StreamedResource(identifier, io.BytesIO(data)))

    def delete(self, name: str) -> None:
        """Remove a resource, if it exists.

        Raises:
            UnsupportedStorageOperationError, StorageError: it could not be removed.
        """
        identifier = self.identifier(name)
        if self.connector.has_resource(identifier):
            # Another process may be faster.
            with contextlib.suppress(ResourceNotFoundError):
                self.connector.delete_resource(identifier)

    def _list(self, prefix: str) -> list[str]:
        """Return the resources with a prefix; none if the store cannot list."""
        try:
            return self.connector.list_resources(prefix)
        except UnsupportedStorageOperationError:
            return []


def _readiness_of_journal(journal: Journal, code: Callable[[], str] | None) -> Readiness:
    """Return why a dataset is not ready whose preparation has begun."""
    reason = "its preparation has not finished"
    has_other_code = bool(journal.steps) and code is not None and code() not in journal.codes
    if has_other_code:
        reason += "; its steps were done by other code"
    return Readiness(reason=reason, resumes=not has_other_code)


def _describe_damage(error: Exception) -> str:
    """Return what is damaged, without the advice of the error."""
    if not isinstance(error, ChecksumMismatchError):
        return str(error).rstrip(".")
    damaged_part = repr(error.identifier)
    if isinstance(error, DamagedBlockError):
        damaged_part = f"block {error.block} of {damaged_part}"
    return (
        f"{damaged_part} is damaged: it has {error.algorithm} {error.actual}, expected "
        f"{error.expected}"
    )


def _difference(record: ResourceRecord, info: ResourceInfo) -> str | None:
    """Return how a stored resource differs from its record; None if it does not."""
    if info.size != record.size:
        return f"has {info.size:,} bytes, {record.size:,} were prepared"
    are_digests_known = info.sha256 is not None and record.sha256 is not None
    if are_digests_known and info.sha256 != record.sha256:
        return f"has sha256 {info.sha256}, prepared was {record.sha256}"
    return None
