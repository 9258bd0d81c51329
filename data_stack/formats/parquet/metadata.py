"""What lies beside the files of a Parquet dataset: the manifest that lists them, and ``_common_metadata``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.dataset.strict_json import JsonObject, seal_json
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.dataset_names import COMMON_METADATA, PARQUET_MANIFEST
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import Folder

__all__ = ["INDEXES_KEY", "ParquetFileRecord", "ParquetManifest", "read_common_metadata", "write_common_metadata"]

#: Where the row-group indexes stand in the key-value metadata of ``_common_metadata``.
INDEXES_KEY: Final = b"data_stack.row_group_indexes"

_FORMAT: Final = "data_stack parquet 5"
_NUMBERS: Final = re.compile(r"(?:\d{1,19}(?:,\d{1,19})*)?")


@dataclass(frozen=True)
class ParquetFileRecord:
    """One Parquet file of a dataset.

    Attributes:
        name: relative to the dataset, with the folders of its partition: ``"day=2024-01-01/part-000000.parquet"``.
        size: bytes.
        row_groups: rows of each row group.
        footer_sha256: from the beginning of the footer to the end of the file, 64 hex digits; None where it is not known.
    """

    name: str
    size: int
    row_groups: tuple[int, ...]
    footer_sha256: str | None = None

    @property
    def n_rows(self) -> int:
        """Rows."""
        return sum(self.row_groups)

    @classmethod
    def of(cls, name: str, size: int, footer: pq.FileMetaData, footer_sha256: str) -> ParquetFileRecord:
        """The record of a file with this footer."""
        n_rows = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        return cls(name, size, n_rows, footer_sha256)

    def to_json(self) -> dict[str, Any]:
        """Plain data, of strings and integers."""
        return {
            "name": self.name,
            "size": self.size,
            "row_groups": ",".join(map(str, self.row_groups)),
            "footer_sha256": self.footer_sha256,
        }

    @classmethod
    def from_json(cls, fields: JsonObject, what: str) -> ParquetFileRecord:
        """The record that :meth:`to_json` described.

        Raises:
            DatasetFileCorruptError: the data is invalid.
        """
        name, groups = fields.text("name"), fields.text("row_groups")
        if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name or "\\" in name:  # it could lead anywhere
            raise DatasetFileCorruptError(f"{what} lists {name!r:.80}, which is no file of a dataset")
        if not _NUMBERS.fullmatch(groups):
            raise DatasetFileCorruptError(f"{what}: {groups!r:.60} are no numbers of rows of {name!r:.80}")
        record = cls(
            name,
            fields.size("size"),
            tuple(map(int, groups.split(","))) if groups else (),
            fields.optional_hexadecimal("footer_sha256", 64),
        )
        fields.done()
        return record


@dataclass(frozen=True)
class ParquetManifest:
    """The content of ``_data_stack_manifest.json``: which files a dataset has, and what is in them.

    It is written last, so that a dataset with a manifest is complete; a file of a partition or of a later writer that it does not
    list is not part of the dataset while ``_data_stack_progress`` is there (a writer is appending). It knows of no changes that
    other tools make: where sizes or names differ from what is stored, ``data-stack parquet generate-metadata`` makes it anew.

    Attributes:
        schema: of the rows, partition columns included.
        files: sorted by name. Rows are numbered through them in this order, and so are row groups.
        partition_by: the columns that are no columns of the files but folders, outermost first.
        n_parts: how many times a writer completed files; the next ones get this number.
    """

    schema: Schema
    files: tuple[ParquetFileRecord, ...]
    partition_by: tuple[str, ...] = ()
    n_parts: int = 0
    _by_name: Mapping[str, ParquetFileRecord] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))
        object.__setattr__(self, "_by_name", {file.name: file for file in self.files})

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return sum(file.n_rows for file in self.files)

    @property
    def n_row_groups(self) -> int:
        """Row groups of all files."""
        return sum(len(file.row_groups) for file in self.files)

    def file(self, name: str) -> ParquetFileRecord | None:
        """The file of that name; None if it is not listed."""
        return self._by_name.get(name)

    def to_json(self) -> bytes:
        """As it is stored: sealed, so that one flipped bit is noticed."""
        return seal_json(
            {
                "format": _FORMAT,
                "n_rows": self.n_rows,
                "n_parts": self.n_parts,
                "schema": json.dumps(self.schema.to_json()),
                "partition_by": json.dumps(list(self.partition_by)),
                "files": [file.to_json() for file in self.files],
            }
        )

    @classmethod
    def from_json(cls, data: bytes, what: str = PARQUET_MANIFEST) -> ParquetManifest:
        """Parse what :meth:`to_json` gave.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another version; the message begins with ``what``.
            ConfigError: its schema has a codec or dtype that is not known here.
        """
        fields = JsonObject.unseal(data, what)
        stated = fields.text("format")
        if stated != _FORMAT:
            raise DatasetFileCorruptError(
                f"{what} is of the format {stated!r:.60}; this version of data_stack reads {_FORMAT!r}. "
                f"`data-stack parquet generate-metadata` makes it anew"
            )
        n_rows, n_parts = fields.size("n_rows"), fields.size("n_parts")
        try:
            schema = Schema.from_json(json.loads(fields.text("schema")))
        except (json.JSONDecodeError, RecursionError) as error:
            raise DatasetFileCorruptError(f"{what}: its schema cannot be read: {error!s:.200}") from error
        partition_by = _parse_names(fields.text("partition_by"), what)
        files = tuple(ParquetFileRecord.from_json(each, what) for each in fields.objects("files"))
        fields.done()
        manifest = cls(schema, files, partition_by, n_parts)
        if len(manifest._by_name) != len(files) or manifest.n_rows != n_rows:
            raise DatasetFileCorruptError(f"{what} is damaged: it lists a file twice, or not as many rows as it states")
        return manifest

    @classmethod
    def read(cls, folder: Folder) -> ParquetManifest | None:
        """The manifest of the dataset in ``folder``; None without a manifest.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        if not folder.has_file(PARQUET_MANIFEST):
            return None
        return cls.from_json(folder.read(PARQUET_MANIFEST), folder.full_name(PARQUET_MANIFEST))

    def write(self, folder: Folder) -> None:
        """Store it, in the place of an older one.

        Raises:
            StorageError: it could not be written; an older one is still there.
        """
        with folder.create(PARQUET_MANIFEST) as file:
            file.write(self.to_json())


def _parse_names(text: str, what: str) -> tuple[str, ...]:
    """Names out of a JSON list of them.

    Raises:
        DatasetFileCorruptError: the text is invalid; the message begins with ``what``.
    """
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DatasetFileCorruptError(f"{what}: {text!r:.60} is no list of columns")
    return tuple(names)


def read_common_metadata(folder: Folder) -> tuple[pa.Schema, dict[bytes, bytes]] | None:
    """Schema of the files and key-value metadata in ``_common_metadata``; None without that file.

    Raises:
        DatasetFileCorruptError: it is damaged.
    """
    if not folder.has_file(COMMON_METADATA):
        return None
    data = folder.read(COMMON_METADATA)
    try:
        footer = pq.read_metadata(pa.BufferReader(data))
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetFileCorruptError(
            f"{folder.full_name(COMMON_METADATA)} is damaged: {error!s:.200}. Remove it, or make it anew: "
            f"data-stack parquet generate-metadata"
        ) from error
    return schema, {key: value for key, value in (footer.metadata or {}).items() if key != b"ARROW:schema"}


def write_common_metadata(folder: Folder, schema: pa.Schema, metadata: Mapping[bytes, bytes]) -> None:
    """Store ``_common_metadata``, in the place of an older one.

    Args:
        folder: of the dataset.
        schema: of the columns of the files.
        metadata: key-value metadata, instead of that of ``schema``.

    Raises:
        StorageError: it could not be written; an older one is still there.
    """
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema.with_metadata(dict(metadata)), sink)
    with folder.create(COMMON_METADATA) as file:
        file.write(sink.getvalue().to_pybytes())
