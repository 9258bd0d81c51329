"""``data_stack.from_croissant``: a dataset that others describe in Croissant, as samples."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from data_stack.codecs.codec import decode_file
from data_stack.codecs.registry import codec_of, type_of_bytes
from data_stack.dataset.declarative import DatasetCard, DatasetFactory
from data_stack.dataset.display.splits import Splits
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.prepared import PreparedResources, Resources
from data_stack.exception import ConfigError, MaliciousFilePathError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.folder import folder_of
from data_stack.io.redaction import shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.web import WebError, follow, is_web
from data_stack.repository.croissant.document import parse_document, read_document
from data_stack.repository.croissant.plans import EVERYTHING, Plan, make_plans
from data_stack.repository.croissant.rows import containers_of, read_rows
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.repository import DatasetRepository

_ROWS_AT_ONCE: Final = 256


def from_croissant(place: str | os.PathLike[str], storage: Storage | None = None, *, progress: bool | None = None) -> Any:
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
        ConfigError: a field needs something that is not read, such as a join; it is named with its record set.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: a file cannot be had, or is not the one that the document describes.
        PreparationError: a file does not hold what the document says; its cause names the field.
        MissingDependencyError: mlcroissant is not installed.
    """
    factory = CroissantFactory(*read_document(place), as_storage_connector(storage))
    repository, name = DatasetRepository(), factory.card.name
    repository.register(name, factory)
    loaded = {split: repository.load(name, split, progress=progress) for split in factory.splits}
    return loaded[EVERYTHING] if list(loaded) == [EVERYTHING] else Splits(loaded)


class CroissantFactory(DatasetFactory):
    """A dataset of a Croissant document.

    Args:
        place: path or URL of the document.
        document: its bytes.
        storage_connector: the store.

    Raises:
        DatasetFileCorruptError, ConfigError, MaliciousFilePathError: as for :func:`from_croissant`.
    """

    def __init__(self, place: str, document: bytes, storage_connector: Any = None) -> None:
        super().__init__(storage_connector)
        # Plain attributes, by which an interrupted preparation recognizes its own.
        self._place, self._document = place, document
        metadata, plans, nodes = _understand(place, document)
        self._places: dict[str, tuple[str, str]] = {}
        waiting, sources = [plan.node for plan in plans if plan.node is not None], list[ResourceDefinition]()
        for node in waiting:
            waiting += [each for each in containers_of(node, nodes) if each not in waiting]
            if not node.contained_in and node.uuid not in self._places:
                sources.append(_define_source(node, place, len(sources)))
                self._places[node.uuid] = sources[-1].identifier, unquote(urlsplit(sources[-1].source).path).rpartition("/")[2]
        self._parts = {
            _part(plan.identifier, split, is_only=len(plans) == 1): (number, split)
            for number, plan in enumerate(plans)
            for split in plan.splits
        }
        is_exact = all(source.sha256 or source.md5_sum for source in sources)
        digest = hashlib.sha256(document + (b"" if is_exact else place.encode())).hexdigest()
        name, version = f"croissant-{_slug(metadata.name)}", f"{_slug(metadata.version)}-{digest[:16]}"
        card = DatasetCard(name, version, _licence(metadata.license), metadata.url, metadata.cite_as)
        vars(self).update(card=card, splits=tuple(self._parts), sources=sources, __doc__=str(metadata.description or ""))

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, plans, nodes = _understand(self._place, self._document)
        for number, plan in enumerate(plans):
            folders = {split: folder_of(prepared, _folder(part)) for part, (of, split) in self._parts.items() if of == number}
            held: dict[str, list[dict[str, Any]]] = {split: [] for split in folders}
            with contextlib.ExitStack() as stack:
                writers = {split: stack.enter_context(ParquetWriter(folder, plan.schema)) for split, folder in folders.items()}
                for row in read_rows(plan, nodes, raw, self._places):
                    split = EVERYTHING if plan.split is None else str(row.pop(plan.split.field.name))
                    if split not in writers:
                        where = plan.split and plan.split.where
                        raise ConfigError(f"{where} gives the split {split!r:.80}, which the document does not list")
                    held[split].append(row)
                    if len(held[split]) == _ROWS_AT_ONCE:
                        _flush(writers[split], held[split])
                for split, writer in writers.items():
                    _flush(writer, held[split])

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """The records of one split; pictures are decoded when they are read."""
        records = ParquetDataset(folder_of(prepared, _folder(split)))
        plan = _understand(self._place, self._document)[1][self._parts[split][0]]
        images = frozenset(column.field.name for column in plan.columns if column.is_image)
        return records.map(functools.partial(_decode_images, images)) if images else records


@functools.lru_cache(4)
def _understand(place: str, document: bytes) -> tuple[Any, list[Plan], dict[str, Any]]:
    """The metadata of a document, the plans of its record sets, and the nodes by their identifiers."""
    metadata = parse_document(place, document)
    return metadata, make_plans(metadata), {node.uuid: node for node in metadata.nodes()}


def _part(record_set: str, split: str, *, is_only: bool) -> str:
    return split if is_only else record_set if split in (EVERYTHING, record_set) else f"{record_set}/{split}"


def _flush(writer: ParquetWriter, rows: list[dict[str, Any]]) -> None:
    if rows:
        writer.append_columns({name: [row[name] for row in rows] for name in rows[0]})
        rows.clear()


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    decoded = {name: sample[name] for name in sample if name not in names or sample[name] is None}
    return {
        name: decoded[name] if name in decoded else decode_file(codec_of(type_of_bytes(data) or "png"), data, name)
        for name, data in sample.items()
    }


def _define_source(node: Any, place: str, number: int) -> ResourceDefinition:
    """The resource of a FileObject that nothing contains."""
    url = getattr(node, "content_url", None)
    if url is None or any(each.startswith("git") for each in node.encoding_formats or ()):
        raise ConfigError(
            f"{node.uuid!r} of {shorten(place)} is a git repository or a FileSet without containedIn: nothing lists its files; "
            f"load the dataset by the catalogue that hosts it, or give its files as FileObjects"
        )
    refused = None
    if is_web(place) or is_web(url):
        try:
            source = follow(place, url)
        except WebError as error:
            refused = error.reason
    else:
        source = str((Path(place).parent / unquote(url)).resolve())
        if not Path(source).is_relative_to(Path(place).parent):
            refused = f"leads to {shorten(url)[:200]}, which is outside of its folder"
    if refused:
        raise MaliciousFilePathError(
            f"{shorten(place)} {refused}, for {node.uuid!r}. Nothing was retrieved; ask its publisher to correct it"
        )
    size = re.fullmatch(r"(\d+)\s*B?", node.content_size or "")
    name = f"raw/{number:04d}-{_slug(urlsplit(source).path.rpartition('/')[2])}"
    return ResourceDefinition(name, source, sha256=node.sha256, md5_sum=node.md5, size=int(size[1]) if size else None)


def _folder(part: str) -> str:
    return f"records/{_slug(part)}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def _slug(text: object) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", str(text or 0)).strip("-.")[:60].rstrip(".") or "0"


def _licence(licences: Any) -> str | None:
    """As SPDX writes it, where it is a URL of SPDX or of Creative Commons."""
    found = []
    for each in licences or ():
        text = str(each if isinstance(each, str) else each.url or each.name)
        if commons := re.search(r"creativecommons\.org/licenses/([a-z-]+)/([\d.]+)", text):
            text = f"CC-{commons[1].upper()}-{commons[2]}"
        found.append(re.sub(r"^https?://(?:www\.)?spdx\.org/licenses/(.+?)(?:\.html|\.json)?$", r"\1", text))
    return " AND ".join(found) or None
