"""The pointer document of a resource: which bytes an identifier names."""

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

_FORMAT: Final = 2
#: The types of the fields that all pointers have.
_KINDS: Final[dict[str, type]] = {
    "_id": str, "length": int, "sha256": str, "write_id": ObjectId, "check": bytes, "modified": datetime.datetime,
}  # fmt: skip
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Pointer:
    """A version of a resource.

    Attributes:
        identifier: the resource.
        length: bytes.
        sha256: of the whole, 64 hex digits.
        data: all bytes of a small resource; None if they lie in a GridFS file, or were not requested.
        file_id, chunk_bytes: that file, and the length of its chunks; None for a small resource.
        write_id: names the write that published it, to find out whether a write succeeded whose answer was lost.
        modified: when it was published, by the server's clock.
        data_digest: the block digest of ``data``; None for a file, whose chunks have their own.
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
        """What the store knows of it."""
        modified = None if self.modified is None else self.modified.replace(tzinfo=datetime.timezone.utc).timestamp()
        return ResourceInfo(self.identifier, self.length, self.sha256, modified)

    def update(self) -> dict[str, Any]:
        """The update that turns a document of the collection ``resources`` into this pointer."""
        of_data = {"data": self.data or b"", "digest": self.data_digest or b""}
        of_file = {"file_id": self.file_id, "chunkSize": self.chunk_bytes}
        content, absent = (of_data, of_file) if self.file_id is None else (of_file, of_data)
        facts = {"format": _FORMAT, "length": Int64(self.length), "sha256": self.sha256, "write_id": self.write_id}
        fields = {**facts, "check": self._check(), **content}
        unset = dict.fromkeys(absent, "")
        return {"$set": fields, "$unset": unset, "$inc": {"rev": 1}, "$currentDate": {"modified": True}}

    def _check(self) -> bytes:
        file_id = None if self.file_id is None else str(self.file_id)
        digest = None if self.data_digest is None else self.data_digest.hex()
        facts = [self.identifier, self.length, self.sha256, self.chunk_bytes, file_id, digest]
        return block_digest(json.dumps(facts).encode())

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str, *, is_whole: bool = True) -> Pointer:
        """Parse a document, checking every field.

        Raises:
            DatasetFileCorruptError: a field is missing, of a wrong type or out of range, or not what was written.
            DamagedBlockError: the bytes of a small resource are damaged.
        """
        identifier: Any = document.get("_id")

        def refuse(what: str) -> NoReturn:
            problem = f"the pointer document of resource {identifier!r} in {where} is damaged: {what}"
            raise DatasetFileCorruptError(f"{problem}. Store the resource again; `data-stack verify` lists other damage.")

        if document.get("format") != _FORMAT:
            refuse(f"'format' is {document.get('format')!r:.60}; this data_stack reads format {_FORMAT}")
        has_data = "digest" in document
        kinds = _KINDS | ({"digest": bytes} if has_data else {"file_id": ObjectId, "chunkSize": int})
        if has_data and (is_whole or "data" in document):
            kinds["data"] = bytes
        for name, kind in kinds.items():
            value = document.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                refuse(f"{name!r} is {value!r:.60}, not of type {kind.__name__}")
        place: tuple[Any, Any] = (None, None) if has_data else (document["file_id"], int(document["chunkSize"]))
        content = document.get("data"), document.get("digest"), *place, document["modified"]
        pointer = cls(identifier, int(document["length"]), document["sha256"], document["write_id"], *content)
        if not 0 <= pointer.length < 1 << 53 or not (pointer.chunk_bytes is None or 0 < pointer.chunk_bytes <= 16 << 20):
            refuse(f"'length' is {pointer.length}, 'chunkSize' {pointer.chunk_bytes}")
        if not _SHA256.fullmatch(pointer.sha256) or pointer._check() != document["check"]:
            refuse("its fields do not match their digest")
        if has_data and pointer.data is not None:
            digest = block_digest(pointer.data)
            if digest != pointer.data_digest or len(pointer.data) != pointer.length:
                raise DamagedBlockError(identifier, where, 0, pointer.length, document["digest"].hex(), digest.hex())
        return pointer
