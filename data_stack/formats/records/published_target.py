"""Writes a record dataset that is published as a whole: to a store, or with sequences."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.records.column_writer import ColumnWriter
from data_stack.formats.records.layout import REFS, SPEC, bag_name, idx_name, spec_json
from data_stack.formats.records.manifest import FileRecord
from data_stack.formats.records.target import Target

#: Stands before the index of a bag whose first record is empty. A reader would take the first
#: entry, which is 0, for such a zero.
_LEADING_ZERO = bytes(8)


class UploadedFile:
    """A file of a store, which hashes it, and publishes it as a whole.

    Args:
        file: the open file: one of a store, or a buffer in memory that is not published itself.

    Attributes:
        file: as given.
        size: the number of bytes so far.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self.size = 0

    def put(self, data: bytes | memoryview) -> None:
        """Write bytes at the end."""
        # A copy, as stores hash bytes in the background.
        self.size += self.file.write(bytes(data))

    def record(self) -> FileRecord:
        """Return the size and the digests of the file of a store."""
        return FileRecord(self.size, self.file.digest.sha256, self.file.digest.blocks)


class PublishedTarget(Target):
    """A store, resources that a dataset prepares, or any folder with sequences.

    All files are published at the end.

    Raises:
        ConfigError: a dataset exists already.
        StorageError: the store cannot be written.
    """

    #: The files that are not published yet.
    _unpublished: contextlib.ExitStack

    #: Whether a column holds sequences. Each index then follows the records in their file.
    _has_sequences: bool

    def _open(self) -> None:
        folder = self._folder
        if folder.has_file(SPEC):
            raise ConfigError(
                f"{folder.full_name(SPEC)!r} exists already, and cannot be resumed; "
                "choose another place"
            )
        self._has_sequences = any(column.is_sequence for column in self._columns.values())
        self._unpublished = self._stack.enter_context(contextlib.ExitStack())
        if self._has_sequences:
            self.writers[REFS] = ColumnWriter(
                REFS, ColumnType("bytes"), codec_of("bytes"), folder.name
            )
        for name, writer in self.writers.items():
            writer.bag = self._open_file(bag_name(name))
            if self._has_sequences:
                writer.idx = UploadedFile(io.BytesIO())
            else:
                writer.idx = self._open_file(idx_name(name))

    def _open_file(self, name: str) -> UploadedFile:
        return UploadedFile(self._unpublished.enter_context(self._folder.create(name)))

    def finish(self) -> None:
        records = {}
        for name, writer in self.writers.items():
            if self._has_sequences:
                if writer.written.begins_empty:
                    writer.bag.put(_LEADING_ZERO)
                writer.bag.put(writer.idx.file.getvalue())
            else:
                records[idx_name(name)] = writer.idx.record()
            records[bag_name(name)] = writer.bag.record()
        self._unpublished.close()
        self._write_manifest(records)
        # Last: without it there is no dataset.
        self._create(SPEC, spec_json(self._columns))
