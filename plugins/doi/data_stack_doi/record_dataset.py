"""The files of a record as a dataset."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from data_stack import (
    CatalogueDataset,
    CatalogueName,
    DatasetCard,
    DatasetIteratorIF,
    ResourceDefinition,
    Resources,
)
from data_stack.exception import CatalogueError
from data_stack.io.folder import folder_of
from data_stack.io.location import Location
from data_stack.repository.places import format_of_name, open_as, stem_of_name
from data_stack_doi.records import Record, RecordFile

#: The ending of a name, with that of a compressed file before it.
_ENDING: Final = re.compile(r"\.[a-z0-9]+(?:\.(?:gz|bz2|xz|zst))?$")

#: A format whose files may hold anything.
_RAW_FORMAT: Final = "bin"

_VERSION_LENGTH: Final = 12


@dataclass(frozen=True)
class _StoredFile:
    """A file of a dataset.

    Attributes:
        name: its name in the store, below ``raw``.
        format_name: the format of its content.
    """

    name: str
    format_name: str


class RecordDataset(CatalogueDataset):
    """The files of a record, one split per file; a single file is the split ``all``.

    Args:
        name: name of the dataset; its part is the name of one file, or None for all files.
        record: the record.

    Raises:
        CatalogueError: no file has a known format, files have several formats, or two files would
            have the same split.
        CatalogueAccessError: the named file is restricted.
    """

    #: The files by their splits.
    _files: dict[str, _StoredFile]

    def __init__(self, name: CatalogueName, record: Record) -> None:
        files: Sequence[RecordFile] = record.files
        if name.part is not None:
            named_file = record.find(name.part)
            files = [] if named_file is None else [named_file]
        format_of_file = _formats_of(files)
        n_formats = len(set(format_of_file.values()))
        if n_formats != 1:
            if n_formats == 0:
                problem = "no file with a name of a known format"
            else:
                problem = "files of several formats"
            raise CatalogueError(
                f"{name.plain} has {problem}; name one as doi:{name.name}#FILE. Its files: "
                f"{record.describe_files()}"
            )
        known_files = list(format_of_file)
        splits = _name_splits(known_files)
        if len(set(splits)) < len(splits):
            raise CatalogueError(
                f"files of {name.plain} only differ in their endings; name one as "
                f"doi:{name.name}#FILE: {record.describe_files()}"
            )

        self._files = {}
        sources = []
        for number, (split, file) in enumerate(zip(splits, known_files, strict=True)):
            stored_name = f"{number:03}{_ending_of(file.name)}"
            self._files[split] = _StoredFile(stored_name, format_of_file[file])
            sources.append(_define(f"raw/{stored_name}", name.name, file))

        page = f"https://doi.org/{name.name}"
        card = DatasetCard(name.folder, _version_of(known_files), record.license, page)
        super().__init__(card, splits, sources, record.title)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open one file."""
        file = self._files[split]
        return open_as(Location(folder_of(prepared, "raw"), file.name), file.format_name)


def _formats_of(files: Sequence[RecordFile]) -> dict[RecordFile, str]:
    """Return the formats of the files whose names have one."""
    formats = {}
    for file in files:
        format_name = format_of_name(file.name)
        if format_name is not None and format_name != _RAW_FORMAT:
            formats[file] = format_name
    return formats


def _ending_of(name: str) -> str:
    """Return the ending of a name of a known format, such as ``.csv.gz``, in lower case."""
    ending = _ENDING.search(name.lower())
    return "" if ending is None else ending[0]


def _name_splits(files: Sequence[RecordFile]) -> list[str]:
    """Return a split for each file, named after the file, and after its folder if need be."""
    if len(files) == 1:
        return ["all"]
    stems = [stem_of_name(PurePosixPath(file.name).name) for file in files]
    if len(set(stems)) == len(stems):
        return stems
    # Files in different folders have the same name.
    splits = []
    for file, stem in zip(files, stems, strict=True):
        splits.append(str(PurePosixPath(file.name).parent / stem))
    return splits


def _version_of(files: Sequence[RecordFile]) -> str:
    """Return a version that changes when a file changes."""
    facts = [(file.name, file.size, file.digest) for file in files]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return digest[:_VERSION_LENGTH]


def _define(identifier: str, doi: str, file: RecordFile) -> ResourceDefinition:
    """Return the definition of a file as a resource.

    A file with a digest that definitions do not support is retrieved by the record's DOI, so that
    :func:`~data_stack_doi.fetching.fetch` compares the digest.
    """
    if file.algorithm is None:
        return ResourceDefinition(identifier, file.url, size=file.size)
    if file.algorithm == "md5":
        return ResourceDefinition(identifier, file.url, md5_sum=file.digest, size=file.size)
    if file.algorithm == "sha256":
        return ResourceDefinition(identifier, file.url, sha256=file.digest, size=file.size)
    return ResourceDefinition(identifier, f"doi:{doi}#{quote(file.name)}", size=file.size)
