"""Retrieves a file of a record by its DOI and name."""

from __future__ import annotations

from data_stack.exception import CatalogueError
from data_stack.io.retriever import SourceError, Transfer
from data_stack.io.retriever.http import fetch_http
from data_stack_doi.resolver import find_record


def fetch(source: str, transfer: Transfer) -> None:
    """Retrieve a file of a record; it must have the size and the digest of the record's listing.

    Args:
        source: ``doi:10.5281/zenodo.4924875/file``; or, for names with a slash,
            ``doi:10.7910/DVN/ABC#folder/file``.
        transfer: takes the bytes.

    Raises:
        SourceError: the record does not exist, its repository does not answer, it has no such
            file, or the file has another size or digest.
    """
    _, _, place = source.partition(":")
    if "#" in place:
        doi, _, name = place.partition("#")
    else:
        doi, _, name = place.rpartition("/")
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
