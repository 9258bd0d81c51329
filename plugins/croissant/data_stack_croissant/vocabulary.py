"""Makes the nodes of documents in Croissant 1.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from data_stack.formats.registry import format_of_suffix

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

#: The words of the vocabulary ``cr:``, which documents write without the prefix.
_OWN_WORDS: Final = (
    "arrayShape",
    "citeAs",
    "column",
    "containedIn",
    "equivalentProperty",
    "extract",
    "field",
    "fileObject",
    "fileProperty",
    "fileSet",
    "format",
    "includes",
    "isArray",
    "isLiveDataset",
    "jsonPath",
    "key",
    "md5",
    "parentField",
    "path",
    "recordSet",
    "references",
    "regex",
    "repeated",
    "replace",
    "samplingRate",
    "separator",
    "source",
    "subField",
    "transform",
)
_LANGUAGES: Final = {"@container": "@language"}

#: The ``@context`` that https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html asks for.
CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": _LANGUAGES,
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": _LANGUAGES,
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{word: f"cr:{word}" for word in _OWN_WORDS},
}

#: Media types of archives and compressed files; each format of data declares its own.
_MEDIA_TYPES_OF_ARCHIVES: Final = {
    ".zip": "application/zip",
    ".tgz": "application/x-tar",
    ".gz": "application/gzip",
}
_UNKNOWN_MEDIA_TYPE: Final = "application/octet-stream"


def make_node(kind: str, identifier: str, name: str, **facts: Any) -> dict[str, Any]:
    """Return a node of a document.

    Args:
        kind: the type of the node without prefix, such as ``"Field"``.
        identifier: the identifier of the node.
        name: the name of the node.
        facts: other properties of the node, by the words of the vocabulary.
    """
    return {"@type": f"cr:{kind}", "@id": identifier, "name": name, **facts}


def make_file(file: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the FileObject of a file.

    Args:
        file: path of the file.
        facts: properties of the node besides its media type.
    """
    name = PurePosixPath(file).name
    media_type = media_type_of(file)
    return make_node("FileObject", file_id(file), name, **facts, encodingFormat=media_type)


def make_inline_records(
    identifier: str, name: str, rows: Sequence[Mapping[str, str]], **facts: Any
) -> dict[str, Any]:
    """Return a RecordSet whose rows are in the document.

    Args:
        identifier: the identifier of the RecordSet.
        name: the name of the RecordSet.
        rows: the texts of each row by column; at least one row.
        facts: other properties of the RecordSet.
    """
    fields = [
        make_node("Field", f"{identifier}/{column}", column, dataType="sc:Text")
        for column in rows[0]
    ]
    data = [{f"{identifier}/{column}": text for column, text in row.items()} for row in rows]
    return make_node("RecordSet", identifier, name, **facts, field=fields, data=data)


def file_id(file: str) -> str:
    """Return the identifier of a file's FileObject."""
    return f"files/{quote(file)}"


def media_type_of(file: str) -> str:
    """Return the media type of a file by its suffix."""
    path = PurePosixPath(file)
    suffix = path.suffix
    if ".tar" in path.suffixes:
        suffix = ".tar"  # also of "a.tar.gz"
    known = format_of_suffix(suffix)
    if known is not None:
        return known.suffixes[suffix]
    return _MEDIA_TYPES_OF_ARCHIVES.get(suffix, _UNKNOWN_MEDIA_TYPE)
