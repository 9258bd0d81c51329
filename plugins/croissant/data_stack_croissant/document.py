"""Reads Croissant documents, which anyone may have written, by mlcroissant."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any, Final

import mlcroissant

from data_stack.exception import DatasetFileCorruptError, MissingFileError
from data_stack.io.redaction import hide_credentials
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.url import StorageURL
from data_stack.io.web import is_web
from data_stack.util.untrusted_text import distinct_fields, parse_json
from data_stack_croissant.document_checks import check_document

MAX_BYTES: Final = 32 << 20
#: Characters of a parser's error in ours.
_MAX_REASON_CHARACTERS: Final = 1000


def read_document(place: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return the absolute path or URL of a document, and its bytes.

    A local document that is too long is cut one byte behind the limit; :func:`parse_document`
    refuses it.

    Raises:
        RetrievalError, MissingFileError: it cannot be read, or exceeds the limit of size.
    """
    text = os.fspath(place)
    if is_web(text):
        return text, _download(text)
    url = StorageURL.parse(place)
    local_path = text if url is None else url.local_path()
    path = Path(local_path).expanduser().resolve()
    if not path.is_file():
        raise MissingFileError(str(path))
    with path.open("rb") as file:
        return str(path), file.read(MAX_BYTES + 1)


def _download(url: str) -> bytes:
    store = InMemoryStorageConnector()
    definition = ResourceDefinition("croissant.json", url)
    limits = Limits(max_bytes=MAX_BYTES, n_retries=1)
    retrieve([definition], store, progress=False, limits=limits)
    with store.get_resource(definition.identifier) as resource:
        return bytes(resource.read())


def parse_document(place: str, data: bytes) -> Any:
    """Parse a document as mlcroissant's ``Metadata``.

    Args:
        place: path or URL of the document, for messages.
        data: the document.

    Raises:
        DatasetFileCorruptError: it is not valid JSON or Croissant, refers to itself, or names
            contexts elsewhere.
    """
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        document = parse_json(data, max_bytes=None, object_pairs_hook=distinct_fields)
        check_document(document)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rdflib's own use of what it deprecates
            return mlcroissant.Dataset(jsonld=document).metadata
    except Exception as error:  # mlcroissant raises anything
        reason = re.sub(r"\s+", " ", str(error))[:_MAX_REASON_CHARACTERS]
        raise DatasetFileCorruptError(
            f"{hide_credentials(place)} is not a valid Croissant document: "
            f"{reason or type(error).__name__}. Ask its publisher to fix it"
        ) from error
