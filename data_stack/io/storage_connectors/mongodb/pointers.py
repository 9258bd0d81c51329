"""The pointer document of a resource: which bytes an identifier stands for."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bson import Binary, Int64, ObjectId

from data_stack.exception import DamagedBlockError, DatasetFileCorruptError
from data_stack.io.integrity import block_digest
from data_stack.io.storage_connectors.connector import ResourceInfo

__all__ = ["Pointer"]

FORMAT: Final = 2
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Pointer:
    """A version of a resource.

    Attributes:
        identifier: the resource.
        length: bytes.
        sha256: of the whole, 64 hex digits.
        data: all bytes of a small resource; None if they lie in a file of GridFS, or were not asked for.
        file_id, chunk_bytes: that file, and the length of its chunks; None for a small resource.
        write_id: names the writing that published it: tells who won when an answer was lost.
        modified: when it was published, by the server's clock.
        data_digest: the digest of ``data`` as of one block; None for a file, whose chunks have their own.
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
    def n_chunks(self) -> int:
        """Number of chunks of its file."""
        return 0 if self.chunk_bytes is None else -(-self.length // self.chunk_bytes)

    @property
    def info(self) -> ResourceInfo:
        """What the store knows of it."""
        modified = None if self.modified is None else self.modified.replace(tzinfo=datetime.timezone.utc).timestamp()
        return ResourceInfo(self.identifier, self.length, self.sha256, b"", modified)

    def update(self) -> dict[str, Any]:
        """The update that makes a document of the collection ``resources`` this pointer, in one step."""
        content: dict[str, Any]
        if self.file_id is None:
            content, absent = (
                {"data": Binary(self.data or b""), "digest": Binary(self.data_digest or b"")},
                ("file_id", "chunkSize"),
            )
        else:
            content, absent = {"file_id": self.file_id, "chunkSize": self.chunk_bytes}, ("data", "digest")
        return {
            "$set": {
                "format": FORMAT,
                "length": Int64(self.length),
                "sha256": self.sha256,
                "write_id": self.write_id,
                "check": Binary(self._check()),
                **content,
            },
            "$unset": dict.fromkeys(absent, ""),
            "$inc": {"rev": 1},
            "$currentDate": {"modified": True},
        }

    def _check(self) -> bytes:
        facts = [self.identifier, self.length, self.sha256, self.chunk_bytes]
        facts += [
            None if self.file_id is None else str(self.file_id),
            None if self.data_digest is None else self.data_digest.hex(),
        ]
        return block_digest(json.dumps(facts).encode())

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str) -> Pointer:
        """The pointer in a document, every field of which is doubted.

        Raises:
            DatasetFileCorruptError: a field is missing, of a wrong type or out of range, or not what was written.
            DamagedBlockError: the bytes of a small resource are not those that were stored.
        """
        identifier = document.get("_id")
        if not isinstance(identifier, str):
            raise _damaged(identifier, where, f"'_id' is {_shown(identifier)}, not of type str")
        if type(document.get("format")) is bool or document.get("format") != FORMAT:
            raise _damaged(
                identifier, where, f"'format' is {_shown(document.get('format'))}; this data_stack reads format {FORMAT}"
            )
        has_data = "digest" in document
        fields: dict[str, tuple[Any, type]] = {
            "length": (document.get("length"), int),
            "sha256": (document.get("sha256"), str),
            "write_id": (document.get("write_id"), ObjectId),
            "check": (document.get("check"), bytes),
            "modified": (document.get("modified"), datetime.datetime),
        }
        if has_data:
            fields |= {"digest": (document["digest"], bytes), "data": (document.get("data", b""), bytes)}
        else:
            fields |= {"file_id": (document.get("file_id"), ObjectId), "chunkSize": (document.get("chunkSize"), int)}
        for name, (value, kind) in fields.items():
            if not isinstance(value, kind) or isinstance(value, bool):
                raise _damaged(identifier, where, f"{name!r} is {_shown(value)}, not of type {kind.__name__}")
        length, chunk_bytes = int(document["length"]), None if has_data else int(document["chunkSize"])
        if not 0 <= length < 1 << 53:
            raise _damaged(identifier, where, f"'length' is {_shown(length)}")
        if chunk_bytes is not None and not 0 < chunk_bytes <= 16 << 20:
            raise _damaged(identifier, where, f"'chunkSize' is {_shown(chunk_bytes)}")
        if not _SHA256.fullmatch(document["sha256"]):
            raise _damaged(identifier, where, "'sha256' is no digest")
        pointer = cls(
            identifier,
            length,
            document["sha256"],
            document["write_id"],
            document.get("data"),
            document.get("digest"),
            document.get("file_id") if not has_data else None,
            chunk_bytes,
            document["modified"],
        )
        if pointer._check() != document["check"]:
            raise _damaged(identifier, where, "its fields are not those that were written together")
        if has_data and pointer.data is not None:
            digest = block_digest(pointer.data)
            if digest != pointer.data_digest or len(pointer.data) != length:
                raise DamagedBlockError(identifier, where, 0, length, document["digest"].hex(), digest.hex())
        return pointer


def _damaged(identifier: object, where: str, what: str) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"the pointer document of resource {identifier!r} in {where} is damaged: {what}. Store the resource again from its "
        f"source or a copy; `data-stack verify --deep` shows what else is damaged."
    )


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
