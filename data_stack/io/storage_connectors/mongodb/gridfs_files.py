"""Files of GridFS that other tools wrote, as resources."""

from __future__ import annotations

import dataclasses
from typing import Any

from bson import Int64

from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.mongodb.chunks import FileChunks
from data_stack.io.storage_connectors.mongodb.connection import Connection, connection_of
from data_stack.io.storage_connectors.mongodb.settings import Settings

__all__ = ["GridFSFile"]


class GridFSFile:
    """One version of a file; gives the resource of it again in another process.

    Args:
        settings: of the database, with the file's own bucket.
        file_id: which version.
    """

    def __init__(self, settings: Settings, file_id: Any) -> None:
        self._settings, self._file_id = settings, file_id

    @classmethod
    def latest(cls, settings: Settings, bucket: str, filename: str) -> GridFSFile:
        """The version that was uploaded last, by the clocks of those who did."""
        if type(filename) is not str:
            raise TypeError(f"a filename is a str, not {type(filename).__name__}")
        settings = dataclasses.replace(settings, bucket=bucket)
        document = _document(connection_of(settings), {"filename": filename}, filename)
        return cls(settings, document["_id"])

    def get_resource(self, identifier: str) -> StreamedResource:
        """The file as a sealed resource named ``identifier``."""
        connection = connection_of(self._settings)
        document = _document(connection, {"_id": self._file_id}, identifier)
        length: Any = document.get("length")
        chunk_bytes: Any = document.get("chunkSize")
        # Some drivers wrote these as floating point numbers.
        for name, value in (("length", length), ("chunkSize", chunk_bytes)):
            is_whole = value.is_integer() if isinstance(value, float) else type(value) in (int, Int64)
            if not is_whole or value < 0:
                raise self._damage_error(identifier, f"{name!r} is {value!r:.60}")
        length, chunk_bytes = int(length), int(chunk_bytes)
        if not (0 < chunk_bytes <= 16 << 20 and length < 1 << 53):
            raise self._damage_error(identifier, f"'chunkSize' is {chunk_bytes}, 'length' {length}")
        chunks = FileChunks(connection, identifier, document["_id"], length, chunk_bytes, None)
        return StreamedResource.from_source(identifier, BlockedSource(chunks), self)

    def _damage_error(self, filename: str, what: str) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(
            f"the document of file {filename!r} in {self._settings.name} is damaged: {what}; upload it again"
        )


def _document(connection: Connection, query: dict[str, Any], filename: str) -> dict[str, Any]:
    newest_first = [("uploadDate", -1), ("_id", -1)]
    document = connection.find_one(filename, "files", query, sort=newest_first)
    if document is None:
        raise ResourceNotFoundError(filename, f"the GridFS bucket of {connection.settings.name}")
    return document
