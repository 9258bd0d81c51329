"""The manifest of a record dataset: its schema and the digests of its files."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

from data_stack.codecs.codec import ColumnType
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import REFS, SPEC, bag_name, idx_name
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES
from data_stack.util.untrusted_text import JsonObject, seal_json
from data_stack.values.dtype_texts import parse_dtype

#: The name of the manifest's file.
MANIFEST = "manifest.json"

#: A file next to the manifest, as long as other files may be longer than the manifest says.
UNFINISHED = "unfinished"

#: The name and version of the format of the manifest.
_FORMAT = "data_stack records 2"

#: The maximum number of dimensions of a value, as in numpy 2.
_MAX_DIMENSIONS = 64

#: The maximum size of a dimension: numpy counts in signed 64-bit integers.
_MAX_SIZE = 2**63 - 1


@dataclass(frozen=True)
class FileRecord:
    """One file of the dataset when it was finished.

    Attributes:
        size: the number of bytes that belong to the dataset; others may follow them while a writer
            appends.
        sha256: the SHA-256 digest of these bytes, 64 hex digits.
        blocks: the digest of each block, 8 bytes each (:mod:`data_stack.io.integrity`).
    """

    size: int
    sha256: str
    blocks: bytes

    def check_size(self, name: str, size: int) -> None:
        """Check that the file still has all bytes.

        Args:
            name: the full name of the file, for messages.
            size: its size now, in bytes.

        Raises:
            DatasetFileCorruptError: it is shorter.
        """
        if size < self.size:
            raise DatasetFileCorruptError(
                f"{name} is cut short: {size:,} of {self.size:,} bytes. Restore it from a copy"
            )


@dataclass(frozen=True)
class RecordsManifest:
    """The content of ``manifest.json``.

    Attributes:
        count: the number of samples.
        columns: the type, dtype and shape of each column. Dtype and shape are those that were
            declared, or else those that all values have.
        record_bytes: the size of each record of a column whose records all have one layout, in
            bytes; None for other columns. The index of such a column need not be read.
        files: the digests of all files by name, of ``spec.json``, too.
    """

    count: int
    columns: Mapping[str, ColumnType]
    record_bytes: Mapping[str, int | None]
    files: Mapping[str, FileRecord]

    def to_json(self) -> bytes:
        """Return the content of the file, with a digest, so that one flipped bit is noticed."""
        columns = []
        for name, column in self.columns.items():
            dtype = None if column.dtype is None else column.dtype.str
            shape = None if column.shape is None else json.dumps(list(column.shape))
            columns.append(
                {
                    "name": name,
                    "type": column.type,
                    "dtype": dtype,
                    "shape": shape,
                    "record_bytes": self.record_bytes[name],
                }
            )
        files = []
        for name, file in self.files.items():
            blocks = base64.b64encode(file.blocks).decode("ascii")
            files.append({"name": name, "size": file.size, "sha256": file.sha256, "blocks": blocks})
        content = {
            "format": _FORMAT,
            "count": self.count,
            "columns": columns,
            "block_bytes": BLOCK_BYTES,
            "files": files,
        }
        return seal_json(content)

    @classmethod
    def from_json(cls, data: bytes, what: str) -> RecordsManifest:
        """Parse the result of :meth:`to_json`.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another version; the message begins with
                ``what``.
        """
        fields = JsonObject.unseal(data, what)
        fields.known_format(_FORMAT, advice="Remove it to read unchecked")
        if fields.size("block_bytes") != BLOCK_BYTES:
            raise DatasetFileCorruptError(
                f"{what} has blocks of another length than {BLOCK_BYTES}; "
                "remove it to read unchecked"
            )
        count = fields.size("count")
        columns: dict[str, ColumnType] = {}
        record_bytes: dict[str, int | None] = {}
        for column_fields in fields.objects("columns"):
            name = column_fields.text("name")
            columns[name] = _parse_column(column_fields, what)
            record_bytes[name] = column_fields.optional(column_fields.size, "record_bytes")
            column_fields.done()

        known_files = {SPEC}
        for name in (REFS, *columns):
            known_files.add(bag_name(name))
            known_files.add(idx_name(name))
        files = {}
        for file_fields in fields.objects("files"):
            name = file_fields.text("name")
            size = file_fields.size("size")
            sha256 = file_fields.hexadecimal("sha256", 64)
            # Another name could lead out of the folder.
            if name not in known_files:
                raise DatasetFileCorruptError(
                    f"{what} lists {name!r:.80}, which is not a file of its columns"
                )
            blocks = _parse_blocks(file_fields.text("blocks"), size, f"{what}: {name}")
            files[name] = FileRecord(size, sha256, blocks)
            file_fields.done()
        fields.done()
        return cls(count, columns, record_bytes, files)


def _parse_column(fields: JsonObject, what: str) -> ColumnType:
    """Return a column of the manifest; the message of an error begins with ``what``.

    Raises:
        DatasetFileCorruptError: its dtype or shape is invalid.
    """
    column_type = fields.text("type")
    dtype = fields.optional(fields.text, "dtype")
    shape = fields.optional(fields.text, "shape")
    try:
        parsed_dtype = None if dtype is None else parse_dtype(dtype)
        parsed_shape = None if shape is None else tuple(json.loads(shape))
        column = ColumnType(column_type, parsed_dtype, parsed_shape)
    except Exception as error:  # numpy's parser of dtypes raises SyntaxError and others
        raise DatasetFileCorruptError(
            f"{what} has an invalid column: {str(error)[:200]}"
        ) from error
    if column.dtype is not None and (column.dtype.hasobject or column.dtype.subdtype is not None):
        raise DatasetFileCorruptError(
            f"{what} names the dtype {dtype!r:.80}, which is not a dtype of plain values"
        )
    sizes = column.shape or ()
    if len(sizes) > _MAX_DIMENSIONS or any(size is not None and size > _MAX_SIZE for size in sizes):
        raise DatasetFileCorruptError(f"{what} names an invalid shape: {shape!r:.80}")
    return column


def _parse_blocks(text: str, size: int, what: str) -> bytes:
    """Return the digests of the blocks of a file of ``size`` bytes.

    Raises:
        DatasetFileCorruptError: they are no base64, or too few or many.
    """
    try:
        blocks = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise DatasetFileCorruptError(
            f"{what}: the digests of its blocks cannot be read"
        ) from error
    # Rounded up, in integers, as a float may not hold the size.
    n_blocks = (size + BLOCK_BYTES - 1) // BLOCK_BYTES
    if len(blocks) != n_blocks * DIGEST_BYTES:
        raise DatasetFileCorruptError(
            f"{what}: {len(blocks)} bytes of digests for {size} bytes in blocks of {BLOCK_BYTES}"
        )
    return blocks
