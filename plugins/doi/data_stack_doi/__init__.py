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
from data_stack.repository.places import format_of_name, open_as
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

    The size and digest in the record's listing are compared with what arrives.
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
    if file.algorithm is not None:
        transfer.hash_by(file.algorithm)
    fetch_http(file.url, transfer)
    if file.size is not None and transfer.size != file.size:
        raise SourceError(f"sends {transfer.size:,} bytes, its listing says {file.size:,}")
    if file.algorithm is not None and (digest := transfer.hash_by(file.algorithm).hexdigest()) != file.digest:
        raise SourceError(f"sends {file.algorithm} {digest}, its listing says {file.digest}")


class DOICatalogue(Catalogue):
    """The records that have a DOI of Zenodo, figshare or a Dataverse."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> RecordDataset:
        """The dataset of a record's files, or of the one file behind ``#``."""
        record = find_record(name.name)
        found = RecordDataset(name, record)
        if name.version not in (None, found.card.version):
            raise RevisionNotFoundError(
                f"the files of {name.plain} are of version {found.card.version} now, not {name.version!r:.40}"
            )
        return found

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """The record whose DOI the text is; there is no index of all DOIs to search by words."""
        if not text.startswith("10."):
            return []
        record = find_record(text)
        sizes = [file.size for file in record.files if file.size is not None]
        return [CatalogueEntry(f"doi:{text}", record.title, record.licence, sum(sizes) if sizes else None)]


class RecordDataset(CatalogueDataset):
    """Files of a record, a split for each; a single file is the split ``all``.

    Args:
        name: of the dataset; its part is a file.
        record: what the repository lists.
    """

    def __init__(self, name: CatalogueName, record: Record) -> None:
        chosen = record.files if name.part is None else (record.find(name.part),)
        known = {file: kind for file in chosen if file is not None and (kind := format_of_name(file.name)) is not None}
        if not known or len(set(known.values())) > 1:
            what = "files of several formats" if known else "no file that data_stack recognises by its name"
            raise CatalogueError(
                f"{name.plain} has {what}; name one as doi:{name.name}#FILE. Its files: {record.describe_files()}"
            )
        splits = ["all"] if len(known) == 1 else [PurePosixPath(file.name).name.partition(".")[0] for file in known]
        if len(set(splits)) < len(splits):  # of files of one name, the folders differ
            splits = [str(PurePosixPath(file.name).parent / split) for file, split in zip(known, splits, strict=True)]
        if len(set(splits)) < len(splits):
            raise CatalogueError(
                f"files of {name.plain} differ in their endings only; name one as doi:{name.name}#FILE: {record.describe_files()}"
            )
        digest = hashlib.sha256(json.dumps([(file.name, file.size, file.digest) for file in known]).encode()).hexdigest()
        card = DatasetCard(name.folder, digest[:12], record.licence, f"https://doi.org/{name.name}")
        files = [f"{number:03}{_ENDING.findall(file.name.lower())[0]}" for number, file in enumerate(known)]
        sources = [_define(f"raw/{stored}", name.name, file) for stored, file in zip(files, known, strict=True)]
        super().__init__(card, splits, sources, record.title)
        self._files = {split: (stored, known[file]) for split, stored, file in zip(splits, files, known, strict=True)}

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """The samples of one file."""
        stored, kind = self._files[split]
        return open_as(Location(folder_of(prepared, "raw"), stored), kind)


def _define(identifier: str, doi: str, file: RecordFile) -> ResourceDefinition:
    """The resource of a file. Digests that definitions do not have are compared by :func:`fetch`."""
    if file.algorithm in (None, "md5", "sha256"):
        md5, sha256 = (file.digest if file.algorithm == each else None for each in ("md5", "sha256"))
        return ResourceDefinition(identifier, file.url, md5, sha256, file.size)
    return ResourceDefinition(identifier, f"doi:{doi}#{quote(file.name)}", size=file.size)
