"""The manifest of a record dataset: its schema and the digests of its files."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from data_stack.codecs.codec import Column
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import REFS, SPEC, bag_name, idx_name
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES
from data_stack.util.untrusted_text import JsonObject, seal_json

MANIFEST = "manifest.json"
#: A file next to the manifest, as long as other files may be longer than the manifest says.
UNFINISHED = "unfinished"
_FORMAT = "data_stack records 2"
_MAX_DIMENSIONS = 64
_MAX_SIZE = 2**63 - 1


@dataclass(frozen=True)
class FileRecord:
    """One file of the dataset when it was finished.

    Attributes:
        size: bytes that belong to the dataset; more may follow while a writer appends.
        sha256: of these bytes, 64 hex digits.
        blocks: the digest of each block, 8 bytes each (:mod:`data_stack.io.integrity`).
    """

    size: int
    sha256: str
    blocks: bytes


@dataclass(frozen=True)
class RecordsManifest:
    """The content of ``manifest.json``.

    Attributes:
        count: number of samples.
        columns: what each column holds, as declared or, where nothing was declared, as all its values were seen to be.
        record_bytes: size of each record of a column whose records all have the layout that its codec derives for the column;
            None for any other. Their index need not be read.
        files: by name, ``spec.json`` included.
    """

    count: int
    columns: Mapping[str, Column]
    record_bytes: Mapping[str, int | None]
    files: Mapping[str, FileRecord]

    def to_json(self) -> bytes:
        """As it is stored: sealed, so that one flipped bit is noticed."""
        columns = []
        for name, column in self.columns.items():
            dtype = None if column.dtype is None else column.dtype.str
            shape = None if column.shape is None else json.dumps(list(column.shape))
            stated = {"name": name, "type": column.type, "dtype": dtype, "shape": shape}
            columns.append({**stated, "record_bytes": self.record_bytes[name]})
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
            DatasetFileCorruptError: it is damaged, or of another version; the message begins with ``what``.
        """
        fields = JsonObject.unseal(data, what)
        fields.known_format(_FORMAT, advice="Remove it to read unchecked")
        if fields.size("block_bytes") != BLOCK_BYTES:
            raise DatasetFileCorruptError(
                f"{what} has blocks of another length than {BLOCK_BYTES}; remove it to read unchecked"
            )
        count = fields.size("count")
        columns: dict[str, Column] = {}
        record_bytes: dict[str, int | None] = {}
        for each in fields.objects("columns"):
            name = each.text("name")
            columns[name] = _column(each, what)
            record_bytes[name] = each.optional(each.size, "record_bytes")
            each.done()
        expected = {
            SPEC,
            *(file(name) for name in (REFS, *columns) for file in (bag_name, idx_name)),
        }
        files = {}
        for each in fields.objects("files"):
            name, size, sha256 = (
                each.text("name"),
                each.size("size"),
                each.hexadecimal("sha256", 64),
            )
            if name not in expected:  # it could lead anywhere
                raise DatasetFileCorruptError(
                    f"{what} lists {name!r:.80}, which is not a file of its columns"
                )
            files[name] = FileRecord(
                size, sha256, _blocks(each.text("blocks"), size, f"{what}: {name}")
            )
            each.done()
        fields.done()
        return cls(count, columns, record_bytes, files)


def _column(fields: JsonObject, what: str) -> Column:
    column_type, dtype, shape = (
        fields.text("type"),
        fields.optional(fields.text, "dtype"),
        fields.optional(fields.text, "shape"),
    )
    try:
        sizes = None if shape is None else tuple(json.loads(shape))
        column = Column(column_type, None if dtype is None else np.dtype(dtype), sizes)
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


def _blocks(text: str, size: int, what: str) -> bytes:
    try:
        blocks = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise DatasetFileCorruptError(
            f"{what}: the digests of its blocks cannot be read"
        ) from error
    if len(blocks) != -(-size // BLOCK_BYTES) * DIGEST_BYTES:
        raise DatasetFileCorruptError(
            f"{what}: {len(blocks)} bytes of digests for {size} bytes in blocks of {BLOCK_BYTES}"
        )
    return blocks
