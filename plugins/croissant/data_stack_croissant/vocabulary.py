"""The words of Croissant 1.1, and the nodes of which a document consists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from data_stack.formats.registry import format_of_suffix

CONFORMS_TO: Final = "http://mlcommons.org/croissant/1.1"

#: The words of Croissant's own vocabulary, ``cr:``, which documents write without prefix.
_OWN_WORDS: Final = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty "
    "fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet "
    "references regex repeated replace samplingRate separator source subField transform"
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
}
for _word in _OWN_WORDS.split():
    CONTEXT[_word] = f"cr:{_word}"

#: Media types of archives and compressed files; each format of data declares its own.
_MEDIA_TYPES_OF_ARCHIVES: Final = {
    ".zip": "application/zip",
    ".tgz": "application/x-tar",
    ".gz": "application/gzip",
}
_UNKNOWN_MEDIA_TYPE: Final = "application/octet-stream"


def make_node(kind: str, identifier: str, name: str, **facts: Any) -> dict[str, Any]:
    """Return a node of a document, such as a ``Field``."""
    return {"@type": f"cr:{kind}", "@id": identifier, "name": name, **facts}


def make_file(file: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the FileObject of a file."""
    name = PurePosixPath(file).name
    media_type = media_type_of(file)
    return make_node("FileObject", file_id(file), name, **facts, encodingFormat=media_type)


def make_inline_records(
    identifier: str, name: str, rows: Sequence[Mapping[str, str]], **facts: Any
) -> dict[str, Any]:
    """Return a RecordSet whose rows of text are in the document."""
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
    suffix = ".tar" if ".tar" in path.suffixes else path.suffix  # also of "a.tar.gz"
    known = format_of_suffix(suffix)
    if known is not None:
        return known.suffixes[suffix]
    return _MEDIA_TYPES_OF_ARCHIVES.get(suffix, _UNKNOWN_MEDIA_TYPE)
