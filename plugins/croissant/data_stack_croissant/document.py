"""Reads Croissant documents of strangers, by mlcroissant."""

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

#: Limit of the size of a document.
MAX_BYTES: Final = 32 << 20
#: Number of characters of an error of mlcroissant that our error repeats.
_MAX_REASON_CHARACTERS: Final = 1000


def read_document(place: str | os.PathLike[str]) -> tuple[str, bytes]:
    """Return the absolute path or URL of a document, and its bytes.

    Of a local document beyond the limit of size, one byte more than the limit is returned.
    :func:`parse_document` refuses that.

    Args:
        place: path or URL of the document.

    Raises:
        MissingFileError: a local document does not exist.
        RetrievalError: a document on a web server cannot be retrieved, or exceeds the limit.
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
    """Return a document of a web server.

    Raises:
        RetrievalError: it cannot be retrieved, or exceeds the limit of size.
    """
    store = InMemoryStorageConnector()
    definition = ResourceDefinition("croissant.json", url)
    limits = Limits(max_bytes=MAX_BYTES, n_retries=1)
    retrieve([definition], store, progress=False, limits=limits)
    with store.get_resource(definition.identifier) as resource:
        return bytes(resource.read())


def parse_document(place: str, data: bytes) -> Any:
    """Parse a document.

    Args:
        place: path or URL of the document, for messages.
        data: the document.

    Returns:
        The ``Metadata`` of mlcroissant.

    Raises:
        DatasetFileCorruptError: the document is not valid JSON or Croissant, refers to itself, or
            names contexts elsewhere.
    """
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        document = parse_json(data, max_bytes=None, object_pairs_hook=distinct_fields)
        check_document(document)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rdflib uses what it deprecates itself
            return mlcroissant.Dataset(jsonld=document).metadata
    except Exception as error:  # mlcroissant does not document its errors: it raises any
        reason = re.sub(r"\s+", " ", str(error))[:_MAX_REASON_CHARACTERS]
        raise DatasetFileCorruptError(
            f"{hide_credentials(place)} is not a valid Croissant document: "
            f"{reason or type(error).__name__}. Ask its publisher to fix it"
        ) from error
