"""A version of a resource: the document that says where its bytes are."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bson import Int64, ObjectId

from data_stack.exception import DamagedBlockError, DatasetFileCorruptError
from data_stack.io.integrity import block_digest
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.util.untrusted_text import describe_format

#: The format of the documents, which docs/stability.md lists.
_FORMAT: Final = 2
#: The types of the fields that the documents of all versions have.
_FIELD_TYPES: Final[Mapping[str, type]] = {
    "_id": str,
    "length": int,
    "sha256": str,
    "write_id": ObjectId,
    "check": bytes,
    "modified": datetime.datetime,
}
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_LENGTH: Final = (1 << 53) - 1
_MAX_CHUNK_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class ResourceVersion:
    """A version of a resource.

    The bytes of a small resource are in the document itself; those of a larger one in a file of
    GridFS.

    Attributes:
        identifier: the identifier of the resource.
        length: the number of bytes.
        sha256: the SHA-256 of all bytes, 64 hex digits.
        write_id: names the write that published the version. It tells whether a write succeeded
            whose answer was lost.
        data: all bytes of a small resource; None if they are in a file, or were not requested.
        data_digest: the block digest of ``data``; None for a file, whose chunks have their own.
        file_id: the file; None for a small resource.
        chunk_bytes: the length of the chunks of the file; None for a small resource.
        modified: when the version was published, by the clock of the server.
    """

    identifier: str
    length: int
    sha256: str
    write_id: ObjectId
    data: bytes | None = None
    data_digest: bytes | None = None
    file_id: ObjectId | None = None
    chunk_bytes: int | None = None
    modified: datetime.datetime | None = None

    @property
    def info(self) -> ResourceInfo:
        """The metadata of the resource."""
        modified = None
        if self.modified is not None:
            modified = self.modified.replace(tzinfo=datetime.timezone.utc).timestamp()
        return ResourceInfo(self.identifier, self.length, self.sha256, modified)

    def update(self) -> dict[str, Any]:
        """Return the update that turns a document of ``bucket.resources`` into this version."""
        data_fields = {"data": self.data or b"", "digest": self.data_digest or b""}
        file_fields = {"file_id": self.file_id, "chunkSize": self.chunk_bytes}
        is_small = self.file_id is None
        set_fields = data_fields if is_small else file_fields
        unset_fields = file_fields if is_small else data_fields
        return {
            "$set": {
                "format": _FORMAT,
                "length": Int64(self.length),
                "sha256": self.sha256,
                "write_id": self.write_id,
                "check": self._digest_fields(),
                **set_fields,
            },
            "$unset": dict.fromkeys(unset_fields, ""),
            # How often the resource was stored. People who look into the database read it.
            "$inc": {"rev": 1},
            "$currentDate": {"modified": True},
        }

    @classmethod
    def of(
        cls, document: Mapping[str, Any], where: str, *, is_whole: bool = True
    ) -> ResourceVersion:
        """Parse a document, checking every field.

        Args:
            document: the document.
            where: the name of the store, for messages.
            is_whole: whether the document has all fields; False if only some were requested.

        Raises:
            DatasetFileCorruptError: a field is missing, of a wrong type or out of range, or differs
                from what was written.
            DamagedBlockError: the bytes of a small resource are damaged.
        """
        identifier: Any = document.get("_id")
        if document.get("format") != _FORMAT:
            problem = f"it {describe_format(document.get('format'), _FORMAT)}"
            _refuse(identifier, where, problem)

        # A file has a file_id; a small resource has a digest, and data if these were requested.
        is_small = "digest" in document
        field_types = dict(_FIELD_TYPES)
        if is_small:
            field_types["digest"] = bytes
            if is_whole or "data" in document:
                field_types["data"] = bytes
        else:
            field_types["file_id"] = ObjectId
            field_types["chunkSize"] = int
        for name, field_type in field_types.items():
            value = document.get(name)
            if not isinstance(value, field_type) or isinstance(value, bool):
                problem = f"{name!r} is {value!r:.60}, not of type {field_type.__name__}"
                _refuse(identifier, where, problem)

        version = cls(
            identifier,
            int(document["length"]),
            document["sha256"],
            document["write_id"],
            data=document.get("data"),
            data_digest=document.get("digest"),
            file_id=None if is_small else document["file_id"],
            chunk_bytes=None if is_small else int(document["chunkSize"]),
            modified=document["modified"],
        )
        version._check_fields(document["check"], where)
        if is_small:
            version._check_data(where)
        return version

    def _check_fields(self, recorded_digest: bytes, where: str) -> None:
        """Check that numbers are in range, and that the fields are those that were written."""
        is_length_valid = 0 <= self.length <= _MAX_LENGTH
        is_chunk_valid = self.chunk_bytes is None or 0 < self.chunk_bytes <= _MAX_CHUNK_BYTES
        if not is_length_valid or not is_chunk_valid:
            problem = f"'length' is {self.length}, 'chunkSize' {self.chunk_bytes}"
            _refuse(self.identifier, where, problem)
        if not _SHA256.fullmatch(self.sha256) or self._digest_fields() != recorded_digest:
            _refuse(self.identifier, where, "its fields do not match their digest")

    def _check_data(self, where: str) -> None:
        """Verify the bytes of a small resource, if they were requested."""
        if self.data is None:
            return
        recorded = self.data_digest or b""
        actual = block_digest(self.data)
        if actual != recorded or len(self.data) != self.length:
            raise DamagedBlockError(
                self.identifier, where, 0, self.length, recorded.hex(), actual.hex()
            )

    def _digest_fields(self) -> bytes:
        """Return a digest of the fields, which detects a damaged document."""
        file_id = None if self.file_id is None else str(self.file_id)
        data_digest = None if self.data_digest is None else self.data_digest.hex()
        fields = [
            self.identifier,
            self.length,
            self.sha256,
            self.chunk_bytes,
            file_id,
            data_digest,
        ]
        return block_digest(json.dumps(fields).encode())


def _refuse(identifier: Any, where: str, problem: str) -> NoReturn:
    raise DatasetFileCorruptError(
        f"the document of resource {identifier!r} in {where} is damaged: {problem}. "
        "Store the resource again; `data-stack verify` lists other damage."
    )
