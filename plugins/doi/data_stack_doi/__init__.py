"""Files and datasets by their DOI: ``data_stack.load("doi:10.5281/zenodo.4924875#tiny.csv")``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from data_stack import (
    Catalogue,
    CatalogueDataset,
    CatalogueEntry,
    CatalogueName,
    DatasetCard,
    DatasetIteratorIF,
    ResourceDefinition,
    Resources,
    StorageConnector,
)
from data_stack.exception import CatalogueError, RevisionNotFoundError
from data_stack.io.folder import folder_of
from data_stack.io.location import Location
from data_stack.io.retriever import Fetch, SourceError, Transfer
from data_stack.io.retriever.http import fetch_http
from data_stack.plugins import hookimpl
from data_stack.repository.places import format_of_name, open_as, stem_of_name
from data_stack_doi.records import Record, RecordFile, find_record

__all__ = ["DOICatalogue", "RecordDataset"]

_ENDING: Final = re.compile(r"\.[a-z0-9]+(?:\.(?:gz|bz2|xz|zst))?$")


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """``doi:10.5281/zenodo.4924875#file``."""
    return {"doi": DOICatalogue()}


@hookimpl
def data_stack_retrievers() -> Mapping[str, Fetch]:
    """``doi:10.5281/zenodo.4924875/file``."""
    return {"doi": fetch}


def fetch(source: str, transfer: Transfer) -> None:
    """Retrieve ``doi:10.5281/zenodo.4924875/file`` or, for names with a slash, ``doi:10.7910/DVN/ABC#folder/file``.

    The file must have the size and digest of the record's listing.
    """
    place = source.partition(":")[2]
    doi, _, name = place.partition("#") if "#" in place else place.rpartition("/")
    try:
        record = find_record(doi)
        file = record.find(name)
    except (CatalogueError, LookupError) as error:
        raise SourceError(str(error)) from None
    if file is None:
        raise SourceError(f"doi:{doi} has no file {name!r:.80}; it has {record.describe_files()}")
    if file.algorithm is not None and file.digest is not None:
        transfer.expect(file.algorithm, file.digest)  # so that a later command may resume it
    fetch_http(file.url, transfer)
    if file.size is not None and transfer.size != file.size:
        raise SourceError(f"sent {transfer.size:,} bytes, expected {file.size:,}")


class DOICatalogue(Catalogue):
    """Records of Zenodo, figshare and Dataverse, by their DOI."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> RecordDataset:
        """Return the dataset of a record's files, or of the one file after ``#``."""
        record = find_record(name.name)
        found = RecordDataset(name, record)
        if name.version not in (None, found.card.version):
            raise RevisionNotFoundError(
                f"{name.plain} now has version {found.card.version}, not {name.version!r:.40}"
            )
        return found

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return the record with this DOI; DOIs cannot be searched by words."""
        if not text.startswith("10."):
            return []
        record = find_record(text)
        sizes = [file.size for file in record.files if file.size is not None]
        return [
            CatalogueEntry(
                f"doi:{text}", record.title, record.license, sum(sizes) if sizes else None
            )
        ]


class RecordDataset(CatalogueDataset):
    """The files of a record, one split per file; a single file is the split ``all``.

    Args:
        name: name of the dataset; its part is a file.
        record: the record.
    """

    def __init__(self, name: CatalogueName, record: Record) -> None:
        chosen = record.files if name.part is None else (record.find(name.part),)
        found = {file: format_of_name(file.name) for file in chosen if file is not None}
        known = {
            file: kind for file, kind in found.items() if kind not in (None, "bin")
        }  # those may hold anything
        if not known or len(set(known.values())) > 1:
            what = "files of several formats" if known else "no file with a name of a known format"
            raise CatalogueError(
                f"{name.plain} has {what}; name one as doi:{name.name}#FILE. Its files: {record.describe_files()}"
            )
        splits = (
            ["all"]
            if len(known) == 1
            else [stem_of_name(PurePosixPath(file.name).name) for file in known]
        )
        if len(set(splits)) < len(splits):  # files in different folders have the same name
            splits = [
                str(PurePosixPath(file.name).parent / split)
                for file, split in zip(known, splits, strict=True)
            ]
        if len(set(splits)) < len(splits):
            raise CatalogueError(
                f"files of {name.plain} only differ in their endings; name one as doi:{name.name}#FILE: {record.describe_files()}"
            )
        digest = hashlib.sha256(
            json.dumps([(file.name, file.size, file.digest) for file in known]).encode()
        ).hexdigest()
        card = DatasetCard(name.folder, digest[:12], record.license, f"https://doi.org/{name.name}")
        files = [
            f"{number:03}{_ENDING.findall(file.name.lower())[0]}"
            for number, file in enumerate(known)
        ]
        sources = [
            _define(f"raw/{stored}", name.name, file)
            for stored, file in zip(files, known, strict=True)
        ]
        super().__init__(card, splits, sources, record.title)
        self._files = {
            split: (stored, known[file])
            for split, stored, file in zip(splits, files, known, strict=True)
        }

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open one file."""
        stored, kind = self._files[split]
        return open_as(Location(folder_of(prepared, "raw"), stored), kind)


def _define(identifier: str, doi: str, file: RecordFile) -> ResourceDefinition:
    """Define the resource of a file; :func:`fetch` compares digests that definitions do not support."""
    if file.algorithm in (None, "md5", "sha256"):
        md5, sha256 = (
            file.digest if file.algorithm == each else None for each in ("md5", "sha256")
        )
        return ResourceDefinition(identifier, file.url, md5, sha256, file.size)
    return ResourceDefinition(identifier, f"doi:{doi}#{quote(file.name)}", size=file.size)
