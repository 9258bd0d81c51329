"""The manifest of a Parquet dataset, which lists its files."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.footer_facts import FooterFacts
from data_stack.formats.parquet.metadata_files import (
    MANIFEST_KEY,
    PARQUET_MANIFEST,
    RECREATE,
    find_metadata,
    read_metadata,
)
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import Folder
from data_stack.util.untrusted_text import JsonObject, parse_json, seal_json

_FORMAT: Final = "data_stack parquet 6"

#: Matches names of files outside of the dataset.
_LEADS_ELSEWHERE: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\\\0]")

_SHA256: Final = re.compile(r"[0-9a-f]{64}")

#: Numbers in a manifest are below; so their sums and numpy's int64 hold them.
_MAX_NUMBER: Final = 1 << 63


@dataclass(frozen=True)
class ParquetFileRecord:
    """A Parquet file of a dataset, with facts of its footer that a reader needs before rows.

    Attributes:
        name: path in the dataset, with the folders of its partition:
            ``"day=2024-01-01/part-000000.parquet"``.
        size: size in bytes.
        row_groups: rows of each row group.
        footer_sha256: SHA-256 from the start of the footer to the end of the file, 64 hex digits.
        columns: values per row of each field, see :meth:`FooterFacts.values_per_row`.
    """

    name: str
    size: int
    row_groups: tuple[int, ...]
    footer_sha256: str
    columns: Mapping[str, int | None]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(self.row_groups)

    @classmethod
    def of(cls, name: str, size: int, facts: FooterFacts, footer_sha256: str) -> ParquetFileRecord:
        """Make the record of a file with this footer."""
        return cls(name, size, tuple(facts.n_rows.tolist()), footer_sha256, facts.values_per_row())

    @classmethod
    def from_json(
        cls, fields: Any, columns: Sequence[Mapping[str, int | None]]
    ) -> ParquetFileRecord:
        """Parse a record: name, size, row groups, digest, and the index in ``columns``.

        Raises:
            ValueError, TypeError, IndexError: the data is invalid.
        """
        name, size, row_groups_text, digest, columns_index = fields
        row_groups: tuple[int, ...] = ()
        if row_groups_text:
            row_groups = tuple(map(int, row_groups_text.split(",")))
        has_valid_texts = not _LEADS_ELSEWHERE.search(name) and _SHA256.fullmatch(digest)
        has_integers = type(size) is int and type(columns_index) is int
        numbers = (size, columns_index, *row_groups)
        are_within = has_integers and min(numbers) >= 0 and max(numbers) < _MAX_NUMBER
        if not has_valid_texts or not are_within:
            raise ValueError(f"{fields!r:.200} is not a record of a file")
        return cls(name, size, row_groups, digest, columns[columns_index])


@dataclass(frozen=True)
class ParquetManifest:
    """The content of ``_data_stack_manifest.parquet``: the files of a dataset.

    It is written last, so a dataset with a manifest is complete. While ``_data_stack_progress``
    exists (a writer is appending), files that the manifest does not list are not part of the
    dataset. The manifest does not notice changes by other tools:
    ``data-stack parquet generate-metadata`` recreates it.

    Attributes:
        schema: of the rows, partition columns included.
        files: sorted by name. Rows and row groups are numbered in this order.
        partition_by: the columns that are stored as folders, outermost first.
        n_parts: how many times a writer completed files; the number of the next part.
    """

    schema: Schema
    files: tuple[ParquetFileRecord, ...]
    partition_by: tuple[str, ...] = ()
    n_parts: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: file.name)))

    @property
    def n_rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.n_rows for file in self.files)

    @functools.cached_property
    def by_name(self) -> Mapping[str, ParquetFileRecord]:
        """The files by name."""
        return {file.name: file for file in self.files}

    def to_json(self) -> bytes:
        """Return the stored form, with a checksum that detects a flipped bit."""
        # Files mostly have the same columns, which are stored once.
        index_of_columns: dict[str, int] = {}
        records = []
        for file in self.files:
            columns_text = json.dumps(file.columns)
            index = index_of_columns.setdefault(columns_text, len(index_of_columns))
            row_groups_text = ",".join(map(str, file.row_groups))
            records.append([file.name, file.size, row_groups_text, file.footer_sha256, index])
        return seal_json(
            {
                "format": _FORMAT,
                "n_rows": self.n_rows,
                "n_parts": self.n_parts,
                "schema": json.dumps(self.schema.to_json()),
                "partition_by": json.dumps(list(self.partition_by)),
                "columns": [json.loads(text) for text in index_of_columns],
                "files": records,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, what: str = PARQUET_MANIFEST) -> ParquetManifest:
        """Parse what :meth:`to_json` returned.

        Raises:
            DatasetFileCorruptError: the manifest is damaged, or of another version; the message
                begins with ``what``.
            ConfigError: its schema has an unknown codec or dtype.
        """
        fields = JsonObject.unseal(data, what)
        fields.known_format(_FORMAT, advice=RECREATE)
        n_rows = fields.size("n_rows")
        n_parts = fields.size("n_parts")
        columns = fields.value("columns")
        records = fields.value("files")
        try:
            stored_schema = parse_json(fields.text("schema"))
            partition_by = parse_json(fields.text("partition_by"))
            if not _are_names(partition_by) or not _are_columns(columns):
                raise ValueError("invalid columns")
            files = tuple(ParquetFileRecord.from_json(record, columns) for record in records)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise DatasetFileCorruptError(
                f"{what} is damaged, or hostile: {error!s:.300}"
            ) from error
        fields.done()
        manifest = cls(Schema.from_json(stored_schema), files, tuple(partition_by), n_parts)
        if len(manifest.by_name) != len(files) or manifest.n_rows != n_rows:
            raise DatasetFileCorruptError(
                f"{what} is damaged: it lists a file twice, or not as many rows as it states"
            )
        return manifest

    @classmethod
    def read(cls, folder: Folder) -> ParquetManifest | None:
        """Read the manifest of the dataset in ``folder``; None without a manifest.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        paths = find_metadata(folder)
        return cls.in_metadata(read_metadata(folder, paths), folder, paths)

    @classmethod
    def in_metadata(
        cls, found: pa.Schema | None, folder: Folder, paths: Sequence[str]
    ) -> ParquetManifest | None:
        """Parse the manifest in metadata.

        Args:
            found: what :func:`read_metadata` returned.
            folder: of the dataset.
            paths: of the metadata files that were read.

        Returns:
            The manifest; None without one.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        if found is None:
            return None
        data = found.metadata.get(MANIFEST_KEY)
        if data is None:
            return None
        return cls.from_json(data, folder.full_name(paths[-1]))


def _are_names(content: Any) -> bool:
    return type(content) is list and all(isinstance(name, str) for name in content)


def _are_columns(content: Any) -> bool:
    """Return whether parsed JSON is a list of numbers of values, or null, by the names of columns.

    Raises:
        TypeError, AttributeError: it has another form.
    """
    for columns in content:
        for n_values in columns.values():
            if type(n_values) is not int and n_values is not None:
                return False
    return True
