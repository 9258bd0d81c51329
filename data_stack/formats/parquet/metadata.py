"""Reads and writes the metadata files of a Parquet dataset.

They are the manifest that lists its files, and ``_common_metadata`` of other tools.

A plugin reads and writes what another tool needs. It names a module by an entry point of the group
``data_stack.parquet_metadata``, whose name is the beginning of the keys::

    [project.entry-points."data_stack.parquet_metadata"]
    dataset-toolkit = "data_stack_petastorm.parquet_metadata"

The module has two functions: ``read_schema(metadata)`` returns the schema of the rows, or None; and
``make_metadata(schema, files, before)`` returns the key-value metadata for a dataset of these
files.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    StorageError,
    UnsupportedStorageOperationError,
    install_command,
)
from data_stack.formats.parquet.footer_facts import FooterFacts
from data_stack.formats.parquet.schema import Schema
from data_stack.io.folder import Folder
from data_stack.util.untrusted_text import JsonObject, parse_json, seal_json

#: A Parquet footer without rows that describes all files, as Spark and Petastorm write it.
COMMON_METADATA: Final = "_common_metadata"
#: Lists the files, in the metadata of a Parquet footer without rows; written last. It is Parquet
#: because Polars and Hugging Face's datasets read all files of a folder.
PARQUET_MANIFEST: Final = "_data_stack_manifest.parquet"
#: Lists the files that an unfinished writer has completed. While it exists, readers ignore files
#: that no manifest lists.
PROGRESS_FOLDER: Final = "_data_stack_progress"

#: Where row-group indexes and manifest stand in the key-value metadata of the manifest's file.
INDEXES_KEY: Final = b"data_stack.row_group_indexes"
MANIFEST_KEY: Final = b"data_stack.manifest"

#: What to do after other tools changed files.
RECREATE: Final = "To list the files as they are now, run `data-stack parquet generate-metadata`"

_FORMAT: Final = "data_stack parquet 6"
#: Matches the paths of metadata files; that of a manifest may be in the folder of a partition.
_METADATA_FILE: Final = re.compile(
    rf"{COMMON_METADATA}|(?:[^/=]*=[^/]*/)*{re.escape(PARQUET_MANIFEST)}"
)
#: Matches names of files outside of the dataset.
_LEADS_ELSEWHERE: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\\\0]")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: Numbers in a manifest are below; so their sums and numpy's int64 hold them.
_MAX_NUMBER: Final = 1 << 63
#: The entry points of plugins.
_GROUP: Final = "data_stack.parquet_metadata"


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
        # files mostly have the same columns, which are stored once
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
    """Whether parsed JSON is a list of numbers of values, or null, by the names of columns.

    Raises:
        TypeError, AttributeError: it has another form.
    """
    for columns in content:
        for n_values in columns.values():
            if type(n_values) is not int and n_values is not None:
                return False
    return True


def find_metadata(folder: Folder, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Find ``_common_metadata`` and the manifest, as far as they exist.

    The manifest of a dataset with partitions is in the folder of one of them: elsewhere, DuckDB and
    Polars would read it as a file without a partition.

    Args:
        folder: of the dataset.
        names: names of all its files; None to list them.

    Returns:
        Their paths, the manifest last. Of several manifests it is the one in the deepest folder.
    """
    if names is None:
        try:
            names = folder.list_files()
        except UnsupportedStorageOperationError:
            names = filter(folder.has_file, (COMMON_METADATA, PARQUET_MANIFEST))
    common_metadata: list[str] = []
    manifests: list[str] = []
    for name in names:
        if name == COMMON_METADATA:
            common_metadata.append(name)
        elif _METADATA_FILE.fullmatch(name):
            manifests.append(name)
    manifests.sort(key=_depth)
    return tuple(common_metadata + manifests[-1:])


def _depth(path: str) -> int:
    return path.count("/")


def read_metadata(folder: Folder, paths: Sequence[str] | None = None) -> pa.Schema | None:
    """Read the schema and all key-value metadata in the metadata files.

    Args:
        folder: of the dataset.
        paths: as :func:`find_metadata` returns them; None to find them.

    Returns:
        The schema of the last file, with the metadata of all; None without such files.

    Raises:
        DatasetFileCorruptError: a file is damaged.
    """
    if paths is None:
        paths = find_metadata(folder)
    schema = None
    metadata: dict[bytes, bytes] = {}
    for path in paths:
        try:
            with reading_parquet(folder.full_name(path)), folder.open(path) as resource:
                footer = pq.read_metadata(resource)
                schema = footer.schema.to_arrow_schema()
        except DatasetFileCorruptError as error:
            raise DatasetFileCorruptError(f"{error}. Remove it. {RECREATE}") from error
        metadata.update(footer.metadata or {})
    if schema is None:
        return None
    metadata.pop(b"ARROW:schema", None)
    return schema.with_metadata(metadata)


@contextlib.contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Raise errors of pyarrow that occur while reading the file ``name`` as ours."""
    try:
        yield
    except (DataStackError, MemoryError):  # Arrow's lack of memory is an ArrowException, too
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, NotImplementedError) as error:
        is_of_system = isinstance(error, OSError) and not isinstance(error, pa.ArrowException)
        errno = getattr(error, "errno", None)
        if is_of_system and errno is not None:
            raise StorageError(f"could not read {name}: {os.strerror(errno)}", errno) from error
        raise DatasetFileCorruptError(
            f"{name} is damaged or truncated, or not a Parquet file: {error!s:.300}"
        ) from error


def write_metadata(
    folder: Folder, schema: pa.Schema, files: Sequence[str], manifest: ParquetManifest | None
) -> None:
    """Write the metadata files, and replace old ones.

    They are Petastorm's ``_common_metadata``, and the manifest last.

    Args:
        folder: of the dataset.
        schema: of the columns of the files, with the key-value metadata of the dataset.
        files: the paths of the files of rows.
        manifest: None where the dataset has none.

    Raises:
        StorageError: a file could not be written; an older manifest is unchanged.
    """
    metadata: dict[bytes, bytes] = schema.metadata or {}
    if _has_foreign(metadata):
        for_other_tools = {
            key: value for key, value in metadata.items() if not key.startswith(b"data_stack.")
        }
        _write_footer(folder, COMMON_METADATA, schema.with_metadata(for_other_tools))
    metadata_of_manifest = _without_foreign(metadata)
    if manifest is not None:
        metadata_of_manifest[MANIFEST_KEY] = manifest.to_json()
    path = _path_of_manifest(folder, files)
    _write_footer(folder, path, schema.with_metadata(metadata_of_manifest))
    if "/" in path and folder.can_delete:
        folder.delete(PARQUET_MANIFEST)  # written before the dataset had partitions


def _path_of_manifest(folder: Folder, files: Sequence[str]) -> str:
    """Return where to write the manifest: over that in a partition, else beside the first file."""
    for path in find_metadata(folder):
        if "/" in path:
            return path
    folder_of_first_file, slash, _ = min(files, default="").rpartition("/")
    return f"{folder_of_first_file}{slash}{PARQUET_MANIFEST}"


def _write_footer(folder: Folder, path: str, schema: pa.Schema) -> None:
    """Write a file without rows. Metadata of its schema would be stored twice."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema.remove_metadata()) as writer:
        writer.add_key_value_metadata(schema.metadata)
    with folder.create(path) as file:
        file.write(sink.getvalue().to_pybytes())


# ---------------------------------------------------------------------- of other tools


def is_foreign(key: bytes) -> bool:
    """Whether a key of the metadata is Petastorm's, and belongs into ``_common_metadata``."""
    return key.startswith(b"dataset-toolkit.")


def _has_foreign(metadata: Mapping[bytes, bytes]) -> bool:
    return any(is_foreign(key) for key in metadata)


def _without_foreign(metadata: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {key: value for key, value in metadata.items() if not is_foreign(key)}


def read_foreign_schema(metadata: Mapping[bytes, bytes]) -> Schema | None:
    """Read the schema that another tool keeps in key-value metadata; None without one.

    Raises:
        ConfigError: the plugin that reads it is not installed, or a codec is unknown.
        DatasetFileCorruptError: the schema is damaged, or hostile.
    """
    if not _has_foreign(metadata):
        return None
    schema: Schema | None = _petastorm_plugin().read_schema(metadata)
    return schema


def add_foreign_metadata(
    metadata: Mapping[bytes, bytes],
    schema: Schema,
    files: Sequence[ParquetFileRecord],
    *,
    always: bool,
) -> Mapping[bytes, bytes]:
    """Add what Petastorm needs to read the files, or update it.

    Args:
        metadata: key-value metadata of the dataset.
        schema: of the rows.
        files: of the dataset.
        always: whether to add it to metadata without it; otherwise these are unchanged.

    Raises:
        ConfigError: the plugin that makes it is not installed, or Petastorm does not support a
            field.
    """
    if not always and not _has_foreign(metadata):
        return metadata
    foreign = _petastorm_plugin().make_metadata(schema, files, metadata)
    return {**_without_foreign(metadata), **foreign}


@functools.cache
def _petastorm_plugin() -> Any:
    for entry_point in importlib.metadata.entry_points(group=_GROUP, name="dataset-toolkit"):
        return entry_point.load()
    raise ConfigError(
        "Petastorm's metadata needs the package lazy-data-stack-petastorm: "
        f"{install_command('petastorm')}"
    )
