"""What the spec and the manifest of a record dataset say about it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from data_stack.codecs.codec import ColumnType
from data_stack.exception import DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.records.layout import (
    ENTRY_BYTES,
    REFS,
    SPEC,
    bag_name,
    idx_name,
    parse_spec,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED, FileRecord, RecordsManifest
from data_stack.io.folder import Folder
from data_stack.util.logger import logger


@dataclass(frozen=True)
class RecordsDescription:
    """What the spec and the manifest of a record dataset say.

    Attributes:
        types: the types of the columns by name, sorted.
        schema: type, dtype and shape of each column, as far as they are known.
        has_references: whether ``refs.bag`` maps samples to records.
        manifest: the manifest; None if Granular wrote the dataset or appended to it, or if the
            dataset is unfinished.
        manifest_sha256: the digest of the manifest's file, 64 hex digits; None without one.
        covered: the files with whose size and digests the bytes are compared, by name; also where
            samples follow that no manifest covers. Empty without such a file.
        is_prefetched: whether the store of the manifest prefetches, so that the store of the other
            files does, too.
    """

    types: dict[str, str]
    schema: Mapping[str, ColumnType]
    has_references: bool
    manifest: RecordsManifest | None = None
    manifest_sha256: str | None = None
    covered: Mapping[str, FileRecord] = dataclasses.field(default_factory=dict)
    is_prefetched: bool = False

    def files_of(self, name: str) -> list[str]:
        """Return the files of a column, or of the references."""
        if self.has_references:
            return [bag_name(name)]
        return [bag_name(name), idx_name(name)]


def read_description(folder: Folder) -> RecordsDescription:
    """Read the spec and the manifest in a folder.

    The sizes of local files are compared with the manifest. Those of other files are compared when
    the files are opened.

    Raises:
        ResourceNotFoundError: the folder has no record dataset.
        DatasetFileCorruptError: the dataset is damaged.
    """
    description = _read(folder)
    if not _is_appended_to(folder, description):
        return description

    # The indexes have entries that the manifest does not cover. A writer of ours may have written
    # both between the two looks: then there is another manifest now.
    description_now = _read(folder)
    if description_now.manifest_sha256 != description.manifest_sha256:
        return description_now
    _warn_once(
        f"{folder.full_name(MANIFEST)} does not cover all samples: "
        "another program, such as Granular, appended some. "
        "Those are read without checksums; renew them with "
        f"data_stack.formats.records.write_manifest({folder.name!r})"
    )
    undeclared = _undeclared_columns(description_now.types)
    return dataclasses.replace(description_now, manifest=None, schema=undeclared)


@functools.cache
def _warn_once(message: str) -> None:
    """Log a warning, but not the same one twice."""
    logger.warning("%s", message)


def _is_appended_to(folder: Folder, description: RecordsDescription) -> bool:
    """Return whether another program appended samples that the manifest does not cover.

    All indexes then have more entries than the manifest covers, and no writer of ours is at work.
    """
    manifest = description.manifest
    if folder.path is None or manifest is None or description.has_references:
        return False
    indexes = [name for name in manifest.files if name.endswith(".idx")]
    if not indexes:
        return False
    for name in indexes:
        n_bytes = os.path.getsize(folder.path / name)
        if n_bytes < manifest.files[name].size + ENTRY_BYTES:
            return False
    return not folder.has_file(UNFINISHED)


def _read(folder: Folder) -> RecordsDescription:
    """Read the spec and the manifest once, and compare them and the sizes of local files."""
    data = None
    is_prefetched = False
    with contextlib.suppress(ResourceNotFoundError), folder.open(MANIFEST) as resource:
        data = folder.read_small(resource)
        is_prefetched = resource.prefetches
    if data is not None:
        return _describe_with_manifest(folder, data, is_prefetched=is_prefetched)
    types = parse_spec(_read_spec(folder), folder.full_name(SPEC))
    has_references = folder.has_file(bag_name(REFS))
    return RecordsDescription(types, _undeclared_columns(types), has_references)


def _undeclared_columns(types: Mapping[str, str]) -> dict[str, ColumnType]:
    """Return columns without dtype and shape."""
    return {name: ColumnType(column_type) for name, column_type in types.items()}


def _read_spec(folder: Folder) -> bytes:
    """Read ``spec.json``.

    Raises:
        ResourceNotFoundError: the folder has none, and so no record dataset.
    """
    try:
        return folder.read(SPEC)
    except ResourceNotFoundError as error:
        raise ResourceNotFoundError(
            f"no record dataset in {folder.name or 'the store'!r}: it has no {SPEC}"
        ) from error


def _describe_with_manifest(
    folder: Folder, data: bytes, *, is_prefetched: bool
) -> RecordsDescription:
    """Return the description of a dataset with a manifest.

    Args:
        folder: the folder of the dataset.
        data: the content of the manifest's file.
        is_prefetched: whether the store prefetches.

    Raises:
        DatasetFileCorruptError: the manifest is damaged, or does not fit the spec or the files.
    """
    manifest = RecordsManifest.from_json(data, folder.full_name(MANIFEST))
    types_in_manifest = {name: column.type for name, column in sorted(manifest.columns.items())}
    if folder.path is not None:
        types_in_spec = _read_spec_of_manifest(folder, manifest)
        if types_in_spec != types_in_manifest:
            raise DatasetFileCorruptError(
                f"{folder.full_name(SPEC)} and {MANIFEST} name different columns or types"
            )
    # In a store, each shard takes a request less without the spec, which says nothing that the
    # manifest does not. RecordReader.verify() compares it.
    description = RecordsDescription(
        types=types_in_manifest,
        schema=manifest.columns,
        has_references=bag_name(REFS) in manifest.files,
        manifest=manifest,
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        covered=manifest.files,
        is_prefetched=is_prefetched,
    )
    _check_files_are_listed(folder, description)
    if folder.path is not None:
        _check_local_sizes(folder, description)
    return description


def _read_spec_of_manifest(folder: Folder, manifest: RecordsManifest) -> dict[str, str]:
    """Read the spec, and compare it with its digest in the manifest.

    Raises:
        DatasetFileCorruptError: the spec is missing or damaged.
    """
    full_name = folder.full_name(SPEC)
    try:
        data = folder.read(SPEC)
    except ResourceNotFoundError as error:
        raise DatasetFileCorruptError(f"{full_name} is missing, but {MANIFEST} lists it") from error
    record = manifest.files.get(SPEC)
    if record is not None:
        has_same_size = len(data) == record.size
        if not has_same_size or hashlib.sha256(data).hexdigest() != record.sha256:
            raise DatasetFileCorruptError(
                f"{full_name} is damaged: its digest differs from the one in {MANIFEST}"
            )
    return parse_spec(data, full_name)


def _check_files_are_listed(folder: Folder, description: RecordsDescription) -> None:
    """Check that the manifest has the digests of the spec and of the files of all columns.

    Raises:
        DatasetFileCorruptError: the manifest lacks the digest of a file.
    """
    files = [SPEC]
    for name in description.types:
        files += description.files_of(name)
    for file in files:
        if file not in description.covered:
            raise DatasetFileCorruptError(f"{folder.full_name(MANIFEST)} has no digest of {file!r}")


def _check_local_sizes(folder: Folder, description: RecordsDescription) -> None:
    """Check that no local file is shorter than the manifest says.

    Raises:
        DatasetFileCorruptError: a file is shorter, or missing.
    """
    for file, record in description.covered.items():
        try:
            size = os.path.getsize(f"{folder.path}/{file}")
        except OSError as error:
            raise missing_file(folder, file, description.types) from error
        record.check_size(folder.full_name(file), size)


def missing_file(folder: Folder, file: str, types: Mapping[str, str]) -> DatasetFileCorruptError:
    """Return the error to raise for a file that is missing in a dataset.

    Args:
        folder: the folder of the dataset.
        file: the name of the file.
        types: the types of the columns by name.
    """
    return DatasetFileCorruptError(
        f"{folder.full_name(file)} is missing; the dataset has the columns {', '.join(types)}. "
        "Restore the file from a copy, or write the dataset again"
    )
