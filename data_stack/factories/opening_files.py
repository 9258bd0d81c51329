"""The small files that ``open()`` of a dataset reads, which are stored together once more."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.factories.resource_record import ResourceRecord
from data_stack.util.untrusted_text import JsonObject, describe_format, parse_json

#: A larger file is not stored once more: requests for its parts take as long as the whole.
MAX_FILE_BYTES: Final = 1 << 20

#: The files that exceed this limit together are read one by one.
MAX_TOTAL_BYTES: Final = 16 << 20

#: The maximum length of the stored resource, compressed or not: the files, and their names.
MAX_STORED_BYTES: Final = 2 * MAX_TOTAL_BYTES

#: The first line of the stored resource.
_FORMAT: Final = b"data_stack opening files 1\n"


@dataclass(frozen=True, slots=True)
class OpeningFiles:
    """The small files that ``open()`` reads, such as the manifest of each shard of records.

    They are stored as one resource beside the manifest, so that a dataset in a remote store opens
    by two requests, however many splits and shards it has. The resource is a copy: without it, each
    file is read by itself. A reader compares each file with the digest in the manifest.

    The resource has a line with its format, and compressed with zlib: a line of JSON with the name
    and size of each file, and the files one after the other.

    Attributes:
        contents: the files by their names in the dataset.
    """

    contents: Mapping[str, bytes]

    def to_bytes(self) -> bytes:
        """Return the files as they are stored."""
        files = []
        for name, content in self.contents.items():
            files.append({"name": name, "size": len(content)})
        index = json.dumps({"files": files}).encode("ascii")
        return _FORMAT + zlib.compress(b"\n".join((index, b"".join(self.contents.values()))))

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> OpeningFiles:
        """Parse the result of :meth:`to_bytes`.

        Args:
            data: the stored resource.
            what: the name of the copy in errors.

        Raises:
            DatasetFileCorruptError: it is damaged, too large, or of another format.
        """
        index, contents = _decompress(data, what)
        try:
            fields = JsonObject(parse_json(index), what)
        except ValueError as error:
            raise DatasetFileCorruptError(f"{what} is damaged: {str(error)[:200]}") from error
        files = {}
        start = 0
        for file in fields.objects("files"):
            end = start + file.size("size")
            files[file.text("name")] = contents[start:end]
            start = end
            file.done()
        fields.done()
        if start != len(contents):
            raise DatasetFileCorruptError(f"{what} is damaged: its files have other sizes")
        return cls(files)

    def by_digest(self) -> dict[str, bytes]:
        """Return the files by their SHA-256, 64 hex digits."""
        return {hashlib.sha256(content).hexdigest(): content for content in self.contents.values()}


def may_have_opening_files(records: Sequence[ResourceRecord]) -> bool:
    """Return whether a dataset of these prepared resources may have opening files.

    A single resource is read by itself, so that a copy would save no request.
    """
    return len(records) > 1


def _decompress(data: bytes, what: str) -> tuple[bytes, bytes]:
    """Return the line with names and sizes, and the files one after the other.

    Raises:
        DatasetFileCorruptError: the data are damaged, too large, or of another format.
    """
    if not data.startswith(_FORMAT):
        stated = data[: len(_FORMAT)]
        raise DatasetFileCorruptError(f"{what} {describe_format(stated, _FORMAT.decode())}")
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data[len(_FORMAT) :], MAX_STORED_BYTES)
    except zlib.error as error:
        raise DatasetFileCorruptError(f"{what} is damaged: {error}") from error
    is_whole = decompressor.eof and not decompressor.unused_data
    if len(data) > MAX_STORED_BYTES or not is_whole:
        raise DatasetFileCorruptError(
            f"{what} is cut short, or has more than {MAX_STORED_BYTES:,} bytes"
        )
    index, _, contents = plain.partition(b"\n")
    return index, contents
