"""The place in a store where the shards of a dataset wait until all of them are there.

Every attempt at a shard stores its resources under names of its own, ``DATASET/preparing@SHARD-ATTEMPT-N``, and, when they are
all there, a record of them, ``DATASET/preparing@SHARD.json``. The record decides: of several attempts one is taken, whole, and
what the others stored is never looked at. Nothing has its final name before the process that prepares the dataset gives it that.

While shards are wanted, ``DATASET/preparing@mark.json`` is there. It is the first that goes when they are not wanted any more,
and whoever stores something looks for it *afterwards*: either the mark was still there, so what was stored is among what is
removed next, or it was not, and the attempt takes its own away. So even one that nobody knows of any more leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from data_stack.dataset.manifest import ResourceRecord, check_names
from data_stack.dataset.resource_names import STAGED
from data_stack.dataset.stored import StoredDataset
from data_stack.dataset.strict_json import MAX_BYTES, JsonObject, sealed_json
from data_stack.exception import (
    DatasetFileCorruptError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)

__all__ = ["ShardRecord", "StagedResource", "Staging"]

FORMAT = 2


@dataclass(frozen=True, slots=True)
class StagedResource:
    """A resource of a shard.

    Attributes:
        record: what it is, under its name in the dataset.
        staged: its name relative to the dataset while it waits; None if it has its own already.
    """

    record: ResourceRecord
    staged: str | None


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What one complete attempt at a shard made.

    Attributes:
        digest: names the shard.
        resources: what it consists of, in the order in which it was made.
    """

    digest: str
    resources: tuple[StagedResource, ...]


class Staging:
    """What is kept of the shards of one preparation.

    Args:
        stored: the dataset.
        fingerprint: names the preparation; what is there of another one is not looked at.
        opening: which opening of this preparation the work belongs to, for a task of it; None: the one that :meth:`open` finds.
    """

    def __init__(self, stored: StoredDataset, fingerprint: str, opening: str | None = None) -> None:
        self._stored, self.fingerprint, self.opening = stored, fingerprint, opening

    # ------------------------------------------------------------------ for who prepares the dataset

    def open(self) -> None:
        """Say that shards are wanted. What an interrupted preparation opened goes on."""
        if self._found_opening() is None:
            fields = {"format": FORMAT, "fingerprint": self.fingerprint, "opening": secrets.token_hex(16)}
            self._stored.write(_MARK, sealed_json(fields))
        self.opening = self._found_opening()

    @staticmethod
    def remove(stored: StoredDataset) -> None:
        """Remove all that waits, of whatever preparation; from now on nothing is wanted.

        What cannot be removed does no harm. A store that cannot delete never had anything.
        """
        connector = stored.connector
        with contextlib.suppress(UnsupportedStorageOperationError):
            stored.delete(_MARK)
            for identifier in connector.list_resources(stored.identifier(STAGED)):
                with contextlib.suppress(ResourceNotFoundError, StorageError):
                    connector.delete_resource(identifier)

    # ------------------------------------------------------------------ for attempts

    def is_open(self) -> bool:
        """Whether shards of this preparation are wanted.

        Not if another process, one without a lease, ended it and a third opened it anew: what was staged is gone then.
        """
        found = self._found_opening()
        return found is not None and self.opening in (None, found)

    def _found_opening(self) -> str | None:
        data = self._stored.read(_MARK, MAX_BYTES)
        try:
            fields = None if data is None else JsonObject.unsealed(data, "mark of the shards")
            if fields is None or fields.size("format") != FORMAT or fields.hexadecimal("fingerprint", 64) != self.fingerprint:
                return None
            return fields.hexadecimal("opening", 32)
        except DatasetFileCorruptError:
            return None

    def name(self, digest: str, attempt: str, number: int) -> str:
        """What a resource is called while it waits, relative to the dataset."""
        return f"{STAGED}{digest[:24]}-{attempt}-{number}"

    def delete(self, names: Iterable[str]) -> None:
        """Remove what an attempt stored that came to nothing; what cannot be removed now is removed with all the rest."""
        for name in names:
            with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
                self._stored.delete(name)

    def write_record(self, record: ShardRecord) -> None:
        """Say that a shard is complete."""
        resources = [{**asdict(each.record), "staged": each.staged} for each in record.resources]
        fields = {"format": FORMAT, "fingerprint": self.fingerprint, "shard": record.digest, "resources": resources}
        self._stored.write(_record_name(record.digest), sealed_json(fields))

    def delete_record(self, digest: str) -> None:
        """Take back that a shard is complete."""
        self.delete([_record_name(digest)])

    # ------------------------------------------------------------------ for both

    def completed(self, digest: str) -> ShardRecord | None:
        """The record of a shard that is complete, all of it still there; None if it must be prepared."""
        try:
            data = self._stored.read(_record_name(digest), MAX_BYTES)
            record = None if data is None else self._parsed(data, digest)
        except DatasetFileCorruptError:
            return None
        return None if record is None else self.found(record)

    def found(self, record: ShardRecord) -> ShardRecord | None:
        """Where the resources of a record are now; None if one is not there any more."""
        resources = []
        for resource in record.resources:
            if resource.staged is not None and self._stored.holds(resource.record, resource.staged):
                resources.append(resource)
            elif self._stored.holds(resource.record):  # who was to give it its own name was killed later
                resources.append(StagedResource(resource.record, None))
            else:
                return None
        return ShardRecord(record.digest, tuple(resources))

    def _parsed(self, data: bytes, digest: str) -> ShardRecord | None:
        """What a stored record says; None if it is of another preparation."""
        fields = JsonObject.unsealed(data, "record of a shard")
        if fields.size("format") != FORMAT or fields.hexadecimal("fingerprint", 64) != self.fingerprint:
            return None
        if fields.hexadecimal("shard", 64) != digest:
            return None
        resources = []
        for each in fields.objects("resources"):
            staged = each.text("staged")
            record = ResourceRecord(each.text("identifier"), each.size("size"), each.hexadecimal("sha256", 64))
            each.done()
            if not staged.startswith(STAGED):
                raise DatasetFileCorruptError(
                    f"the record of a shard is damaged: {staged[:60]!r} is no name of a resource of one"
                )
            resources.append(StagedResource(record, staged))
        fields.done()
        dataset = self._stored.definition.folder
        check_names(dataset, (each.record.identifier for each in resources))
        check_names(dataset, (str(each.staged) for each in resources))
        return ShardRecord(digest, tuple(resources))


_MARK = f"{STAGED}mark.json"


def _record_name(digest: str) -> str:
    return f"{STAGED}{digest[:24]}.json"
