"""Defines the manifest of a Parquet dataset, which lists its files."""

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

#: Matches in a path that could name a file outside of the dataset: a part that is empty, ``.`` or
#: ``..``, a backslash or a NUL.
_LEADS_ELSEWHERE: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\\\0]")

_SHA256: Final = re.compile(r"[0-9a-f]{64}")

#: Stands for a number of values per row that is no integer, and for that of no rows.
_DIFFERING_ROWS: Final = -1

#: Each number in a manifest is smaller, so that numpy's int64 holds it.
_MAX_NUMBER: Final = 1 << 63


@dataclass(frozen=True)
class ParquetFileRecord:
    """Describes a Parquet file of a dataset.

    It holds what a reader needs from the footer before it reads rows, so that the footer need not
    be read for it.

    Attributes:
        name: path in the dataset, with the folders of its partition:
            ``"day=2024-01-01/part-000000.parquet"``.
        size: size of the file in bytes.
        row_groups: number of rows of each row group.
        footer_sha256: SHA-256 from the start of the footer to the end of the file, 64 hex digits.
        columns: number of values per row for each field by name: 1 for scalars, the average length
            of lists; -1 if that is no integer or there are no rows, None if a value may be null.
    """

    name: str
    size: int
    row_groups: tuple[int, ...]
    footer_sha256: str
    columns: Mapping[str, int | None]

    @property
    def n_rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.row_groups)

    @classmethod
    def of(cls, name: str, size: int, facts: FooterFacts, footer_sha256: str) -> ParquetFileRecord:
        """Return the record of a file.

        Args:
            name: path of the file in the dataset.
            size: size of the file in bytes.
            facts: facts of its footer.
            footer_sha256: as in the attributes.
        """
        row_groups = tuple(facts.n_rows.tolist())
        return cls(name, size, row_groups, footer_sha256, facts.values_per_row())

    @classmethod
    def from_json(
        cls, fields: Any, columns: Sequence[Mapping[str, int | None]]
    ) -> ParquetFileRecord:
        """Return the record in the parsed JSON of a manifest.

        Args:
            fields: a list of name, size, row groups (as text: ``"1000,1000,24"``), digest, and the
                index of the file's columns in ``columns``.
            columns: the columns of files, each stored once.

        Raises:
            ValueError, TypeError, IndexError: the data is invalid.
        """
        name, size, row_groups_text, digest, columns_index = fields
        row_groups = _parse_numbers(row_groups_text)
        if _LEADS_ELSEWHERE.search(name):
            raise ValueError(f"{name!r:.200} is not the path of a file of the dataset")
        if not _SHA256.fullmatch(digest):
            raise ValueError(f"{name!r:.100} has the invalid SHA-256 {digest!r:.100}")
        for number in (size, columns_index, *row_groups):
            if not _is_number(number):
                raise ValueError(f"{name!r:.100} has the invalid number {number!r:.100}")
        return cls(name, size, row_groups, digest, columns[columns_index])


@dataclass(frozen=True)
class ParquetManifest:
    """Lists the files of a dataset, as ``_data_stack_manifest.parquet`` stores them.

    A writer writes the manifest last. So a dataset with a manifest is complete.

    While a writer appends to the dataset, the folder ``_data_stack_progress`` exists. Then files
    that the manifest does not list are not part of the dataset.

    Other tools do not update the manifest. After they changed files,
    ``data-stack parquet generate-metadata`` recreates it.

    Attributes:
        schema: schema of the rows, partition columns included.
        files: records of the files, sorted by name. Rows and row groups are numbered in this order.
        partition_by: the columns that are stored as folders, outermost first.
        n_parts: number of parts that writers have completed. A part is the files that a writer
            completes together; their names contain its number, and this is that of the next part.
    """

    schema: Schema
    files: tuple[ParquetFileRecord, ...]
    partition_by: tuple[str, ...] = ()
    n_parts: int = 0

    def __post_init__(self) -> None:
        sorted_files = tuple(sorted(self.files, key=lambda file: file.name))
        # Only this way are the attributes of a frozen dataclass set.
        object.__setattr__(self, "files", sorted_files)

    @property
    def n_rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.n_rows for file in self.files)

    @functools.cached_property
    def by_name(self) -> Mapping[str, ParquetFileRecord]:
        """Records of the files by name."""
        return {file.name: file for file in self.files}

    def to_json(self) -> bytes:
        """Return the stored form, with a digest that detects a flipped bit."""
        # The columns are the same in most files. Each form of them is stored once, and the record
        # of a file has its index.
        index_of_columns: dict[str, int] = {}
        records = []
        for file in self.files:
            columns_text = json.dumps(file.columns)
            if columns_text not in index_of_columns:
                index_of_columns[columns_text] = len(index_of_columns)
            index = index_of_columns[columns_text]
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

        Args:
            data: the stored form.
            what: the name of the manifest, with which the messages of errors begin.

        Raises:
            DatasetFileCorruptError: the manifest is damaged, or of another version.
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
            _check_names(partition_by)
            _check_columns(columns)
            files = tuple(ParquetFileRecord.from_json(record, columns) for record in records)
        except (TypeError, ValueError, IndexError) as error:
            # A part has another form. The digest is right: so somebody has written it in this form.
            raise DatasetFileCorruptError(
                f"{what} is damaged, or hostile: {error!s:.300}"
            ) from error
        fields.done()  # raises if there are other fields
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
        cls, schema: pa.Schema | None, folder: Folder, paths: Sequence[str]
    ) -> ParquetManifest | None:
        """Return the manifest in the metadata of a dataset.

        Args:
            schema: the schema with metadata that :func:`read_metadata` returned.
            folder: the folder of the dataset.
            paths: the paths of the metadata files, as :func:`find_metadata` returned them.

        Returns:
            The manifest; None without one.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        if schema is None:
            return None
        data = schema.metadata.get(MANIFEST_KEY)
        if data is None:
            return None
        path_of_manifest = paths[-1]
        return cls.from_json(data, folder.full_name(path_of_manifest))


def _parse_numbers(text: Any) -> tuple[int, ...]:
    """Parse numbers such as ``"1000,1000,24"``; there may be none.

    Raises:
        ValueError: ``text`` is not text of numbers.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected numbers as text, got {text!r:.200}")
    if not text:
        return ()
    return tuple(map(int, text.split(",")))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _check_names(content: Any) -> None:
    """Check that parsed JSON is a list of text.

    Raises:
        ValueError: it is not.
    """
    if type(content) is not list or not all(isinstance(name, str) for name in content):
        raise ValueError(f"partition_by must be a list of names, got {content!r:.200}")


def _check_columns(content: Any) -> None:
    """Check that parsed JSON is a list of objects with values per row, see ``columns`` of a record.

    Raises:
        ValueError: it is not.
    """
    if type(content) is not list:
        raise ValueError(f"columns must be a list of objects, got {content!r:.200}")
    for columns in content:
        if not isinstance(columns, dict) or not all(map(_is_values_per_row, columns.values())):
            raise ValueError(f"columns must have numbers of values per row, got {columns!r:.200}")


def _is_values_per_row(value: Any) -> bool:
    return value is None or _is_number(value) or (type(value) is int and value == _DIFFERING_ROWS)
