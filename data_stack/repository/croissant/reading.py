"""``data_stack.from_croissant``: a dataset that others describe in Croissant, as samples."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import posixpath
import re
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import codec_of, decode_file, type_of_bytes
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingDependencyError,
    MissingFileError,
)
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.folder import folder_of
from data_stack.io.redaction import shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import Limits, retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.url import StorageURL
from data_stack.io.web import is_web
from data_stack.plugins.manager import default_manager
from data_stack.repository.croissant.plans import EVERYTHING, Plan, Plans
from data_stack.repository.croissant.rows import RowReader
from data_stack.repository.croissant.sources import Sources, slug
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.named_dataset import NamedDataset
from data_stack.show.splits import Splits
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
        problem = f"is not a valid Croissant document: {reason or type(error).__name__}. Ask its publisher to fix it"
        raise DatasetFileCorruptError(f"{shorten(place)} {problem}") from error


def _check(document: Any) -> None:
    """Refuse what would make a parser fetch other documents, or go round in circles."""
    context = document.get("@context") if isinstance(document, dict) else None
    if not isinstance(context, dict):
        raise ValueError(
            "it is not an object with an object as @context; contexts elsewhere are not fetched"
        )
    body = {key: value for key, value in document.items() if key != "@context"}
    plain = {
        name
        for name, what in context.items()
        if isinstance(what, dict) and what.get("@type") == "@json"
    }
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
        inside = (
            [child for key, child in value.items() if key not in plain]
            if isinstance(value, dict)
            else value
        )
        identifier = (
            _full_id(value["@id"], context) if isinstance(value, dict) and "@id" in value else None
        )
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
            raise ValueError(
                f"its objects and lists are more than {MAX_DEPTH} deep inside of each other"
            )
        objects = [each for each in level if isinstance(each, dict)]
        yield from objects
        level = [child for each in level if isinstance(each, list) for child in each]
        level += [child for each in objects for key, child in each.items() if key not in plain]


def _full_id(identifier: Any, context: Mapping[str, Any]) -> str:
    prefix, colon, rest = str(identifier).partition(":")
    return (
        f"{context[prefix]}{rest}"
        if colon and isinstance(context.get(prefix), str)
        else posixpath.normpath(str(identifier))
    )


def from_croissant(
    place: str | os.PathLike[str], storage: Storage | None = None, *, progress: bool | None = None
) -> Any:
    """The samples of a dataset that a Croissant document describes: dicts by the names of its fields.

    ::

        flowers = data_stack.from_croissant("https://example.org/flowers/croissant.json")
        flowers["train"][0]                    # {"petal": 1.4, "species": "setosa"}

    The first use retrieves the files into the store, checks their digests and sizes, and turns the records into Parquet there,
    from which they are then read lazily. mlcroissant validates the document; it downloads and unpacks nothing.

    Args:
        place: path or URL of the document.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars; see :func:`data_stack.load`.

    Returns:
        One iterator; or a dict of them, where a field refers to a list of splits, by the names of the splits, and where there
        are several record sets, by their identifiers, followed by ``/`` and the split.

    Raises:
        DatasetFileCorruptError: the document is not valid.
        ConfigError: a field needs something that is not read; it is named with its record set. Or a FileSet has no files, or too
            many.
        CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository that the document names.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: a file cannot be retrieved, or differs from its digest in the document.
        PreparationError: a file does not match the document; the cause names the field.
        MissingDependencyError: mlcroissant is not installed.
    """
    factory = CroissantFactory(*read_document(place), as_storage_connector(storage))
    default_manager().register_retrievers(
        source.source for source in factory.sources
    )  # those of repositories are a plugin's
    dataset = NamedDataset(factory.card.name, factory)
    loaded = {split: dataset.load(split, progress=progress) for split in factory.splits}
    return loaded[EVERYTHING] if list(loaded) == [EVERYTHING] else Splits(loaded)


class CroissantFactory(DatasetFactory):
    """A dataset of a Croissant document.

    Args:
        place: path or URL of the document.
        document: its bytes.
        storage_connector: the store.

    Raises:
        DatasetFileCorruptError, ConfigError, CatalogueError, MaliciousFilePathError: as for :func:`from_croissant`.
    """

    def __init__(self, place: str, document: bytes, storage_connector: Any = None) -> None:
        super().__init__(storage_connector)
        # Plain attributes, by which an interrupted preparation recognizes its own.
        self._place, self._document = place, document
        metadata, plans = _understand(place, document)
        tables = dict.fromkeys(
            column.table
            for plan in plans.all.values()
            for column in (*plan.columns, *(join.right for join in plan.joins))
        )
        sources = Sources(
            place, plans.files, [plans.files[table] for table in tables if table in plans.files]
        )
        self._places = sources.places
        self._parts: dict[str, tuple[int, str]] = {}
        for number, plan in enumerate(plans.chosen):
            for split in plan.splits:
                part = (
                    plan.identifier
                    if split in (EVERYTHING, plan.identifier)
                    else f"{plan.identifier}/{split}"
                )
                self._parts[split if len(plans.chosen) == 1 else part] = number, split
        digest = hashlib.sha256("\0".join([*sources.facts, ""]).encode() + document).hexdigest()
        name, version = (
            f"croissant-{slug(metadata.name)}",
            f"{slug(metadata.version)}-{digest[:16]}",
        )
        card = DatasetCard(
            name, version, _license(metadata.license), metadata.url, metadata.cite_as
        )
        about = str(metadata.description or "")
        vars(self).update(
            card=card, splits=tuple(self._parts), sources=sources.definitions, __doc__=about
        )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, plans = _understand(self._place, self._document)
        reader = RowReader(plans, raw, self._places)
        for number, plan in enumerate(plans.chosen):
            folders = {
                split: folder_of(prepared, _folder(part))
                for part, (of, split) in self._parts.items()
                if of == number
            }
            with contextlib.ExitStack() as stack:
                writers = {
                    split: stack.enter_context(ParquetWriter(folder, plan.schema))
                    for split, folder in folders.items()
                }
                for rows in reader.read(plan):
                    for split, columns in _divide(plan, rows).items():
                        if split not in writers:
                            where = plan.split and plan.split.where
                            raise ConfigError(
                                f"{where} has the split {split!r:.80}, which the document does not list"
                            )
                        writers[split].append_columns(columns)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """The records of one split; pictures are decoded when they are read."""
        records = ParquetDataset(folder_of(prepared, _folder(split)))
        plan = _understand(self._place, self._document)[1].chosen[self._parts[split][0]]
        images = frozenset(
            column.field.name for column in plan.columns if column.kind == "ImageObject"
        )
        return records.map(functools.partial(_decode_images, images)) if images else records


@functools.lru_cache(4)
def _understand(place: str, document: bytes) -> tuple[Any, Plans]:
    """The metadata of a document, and the plans of its record sets."""
    metadata = parse_document(place, document)
    return metadata, Plans(metadata)


def _divide(plan: Plan, rows: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, list[Any]]]:
    """The values of rows by split and name."""
    divided: dict[str, list[tuple[Any, ...]]] = {}
    position = None if plan.split is None else plan.columns.index(plan.split)
    for row in rows:
        divided.setdefault(EVERYTHING if position is None else str(row[position]), []).append(row)
    kept = [
        (number, column.field.name)
        for number, column in enumerate(plan.columns)
        if number != position
    ]
    return {
        split: {name: [row[number] for row in part] for number, name in kept}
        for split, part in divided.items()
    }


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _decode(name, data) if name in names else data for name, data in sample.items()}


def _decode(name: str, data: Any) -> Any:
    """A picture; of a list of them, a list."""
    if data is None or isinstance(data, (list, np.ndarray)):
        return None if data is None else [_decode(name, each) for each in data]
    return decode_file(codec_of(type_of_bytes(data) or "png"), data, name)


def _folder(part: str) -> str:
    return f"records/{slug(part)}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def _license(licenses: Any) -> str | None:
    """As SPDX writes it, where it is a URL of SPDX or of Creative Commons."""
    found = []
    for each in licenses or ():
        text = str(each if isinstance(each, str) else each.url or each.name)
        if commons := re.search(r"creativecommons\.org/licenses/([a-z-]+)/([\d.]+)", text):
            text = f"CC-{commons[1].upper()}-{commons[2]}"
        found.append(
            re.sub(r"^https?://(?:www\.)?spdx\.org/licenses/(.+?)(?:\.html|\.json)?$", r"\1", text)
        )
    return " AND ".join(found) or None
