"""Documents of Croissant from anywhere: fetched, bounded, and validated by mlcroissant, which downloads nothing here."""

from __future__ import annotations

import itertools
import os
import posixpath
import re
import warnings
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError, MissingDependencyError, MissingFileError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.url import StorageURL, shorten
from data_stack.io.web import is_web
from data_stack.util.untrusted_text import distinct_fields, parse_json

try:
    import mlcroissant
except ImportError as error:
    raise MissingDependencyError("from_croissant()", "mlcroissant", "croissant") from error

MAX_BYTES: Final = 32 << 20
#: Objects and lists inside of each other.
MAX_DEPTH: Final = 64
#: Nodes of a document with each reference written out, which is how mlcroissant goes through it.
_MAX_NODES: Final = 1_000_000
#: Objects but those of inline data, for each of which mlcroissant takes half a millisecond; a field has about four.
MAX_OBJECTS: Final = 50_000


def read_document(place: str | os.PathLike[str]) -> tuple[str, bytes]:
    """The absolute path or URL of a document, and its bytes.

    Raises:
        RetrievalError, MissingFileError: it cannot be read, or exceeds the limit of size.
    """
    text = os.fspath(place)
    if is_web(text):
        store = InMemoryStorageConnector()
        limits = Limits(max_bytes=MAX_BYTES, n_retries=1)
        retrieve([ResourceDefinition("croissant.json", text)], store, progress=False, limits=limits)
        with store.get_resource("croissant.json") as resource:
            return text, resource.read()
    url = StorageURL.parse(place)
    path = Path(text if url is None else url.local_path()).expanduser().resolve()
    if not path.is_file():
        raise MissingFileError(str(path))
    with path.open("rb") as file:
        return str(path), file.read(MAX_BYTES + 1)


def parse_document(place: str, data: bytes) -> Any:
    """Parse a document as mlcroissant's ``Metadata``.

    Raises:
        DatasetFileCorruptError: it is not valid JSON or Croissant, refers to itself, or names contexts elsewhere.
    """
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        document = parse_json(data, max_bytes=None, object_pairs_hook=distinct_fields)
        _check(document)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rdflib's own use of what it deprecates
            return mlcroissant.Dataset(jsonld=document).metadata
    except Exception as error:  # mlcroissant raises anything
        reason = re.sub(r"\s+", " ", str(error))[:1000]
        raise DatasetFileCorruptError(
            f"{shorten(place)} is not a valid Croissant document: {reason or type(error).__name__}. Ask its publisher to fix it"
        ) from error


def _check(document: Any) -> None:
    """Refuse what would make a parser fetch other documents, or go round in circles."""
    context = document.get("@context") if isinstance(document, dict) else None
    if not isinstance(context, dict):
        raise ValueError("it is not an object with an object as @context; contexts elsewhere are not fetched")
    body = {key: value for key, value in document.items() if key != "@context"}
    plain = {name for name, what in context.items() if isinstance(what, dict) and what.get("@type") == "@json"}
    nodes = list(itertools.islice(_objects(body, plain), MAX_OBJECTS + 1))
    if len(nodes) > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS:,} objects, besides inline data")
    words = {"@context", "@import", "@base", "@graph", "@reverse", "@included", "@nest"}
    for node in (*nodes, *_objects(context)):
        if found := words & node.keys():
            raise ValueError(f"{min(found)} is only understood at the top, where it is an object")
    if any(isinstance(value, str) and value.startswith("@") for value in context.values()):
        raise ValueError("its @context renames words that begin with @")
    known: dict[str, list[Any]] = {}
    for node in nodes:
        if "@id" in node:
            known.setdefault(_full_id(node["@id"], context), []).extend(node.values())
    weights: dict[str, int] = {}

    def weigh(value: Any, above: tuple[str, ...]) -> int:
        """The number of nodes below a value with each reference written out."""
        if not isinstance(value, (dict, list)):
            return 1
        inside = [child for key, child in value.items() if key not in plain] if isinstance(value, dict) else value
        identifier = _full_id(value["@id"], context) if isinstance(value, dict) and "@id" in value else None
        if identifier is not None:
            if identifier in above:
                raise ValueError(f"{identifier!r:.80} refers to itself")
            if identifier in weights:
                return weights[identifier]
            inside, above = known[identifier], (*above, identifier)
        weight = 1 + sum(weigh(child, above) for child in inside)
        if weight > _MAX_NODES:
            raise ValueError(f"its references, written out, are more than {_MAX_NODES:,} nodes")
        return weight if identifier is None else weights.setdefault(identifier, weight)

    weigh(body, ())


def _objects(value: Any, plain: Container[str] = ()) -> Iterator[dict[str, Any]]:
    """The objects in a value, but those in inline data, which are the values of ``plain`` keys."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"its objects and lists are more than {MAX_DEPTH} deep inside of each other")
        objects = [each for each in level if isinstance(each, dict)]
        yield from objects
        level = [child for each in level if isinstance(each, list) for child in each]
        level += [child for each in objects for key, child in each.items() if key not in plain]


def _full_id(identifier: Any, context: Mapping[str, Any]) -> str:
    prefix, colon, rest = str(identifier).partition(":")
    return f"{context[prefix]}{rest}" if colon and isinstance(context.get(prefix), str) else posixpath.normpath(str(identifier))
