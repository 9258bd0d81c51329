"""``data_stack.from_croissant``: a dataset that others describe in Croissant, as samples."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.codec import codec_of, decode_file, type_of_bytes
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.folder import folder_of
from data_stack.plugins.manager import default_manager
from data_stack.repository.croissant.document import parse_document, read_document
from data_stack.repository.croissant.plans import EVERYTHING, Column, Plan, Plans
from data_stack.repository.croissant.rows import RowReader
from data_stack.repository.croissant.sources import Sources, slug
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.resolved import NamedDataset
from data_stack.show.page import Splits


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
        ConfigError: a field needs something that is not read; it is named with its record set. Or a FileSet has no files, or too
            many.
        CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository that the document names.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: a file cannot be retrieved, or differs from its digest in the document.
        PreparationError: a file does not match the document; the cause names the field.
        MissingDependencyError: mlcroissant is not installed.
    """
    factory = CroissantFactory(*read_document(place), as_storage_connector(storage))
    default_manager().register_retrievers(source.source for source in factory.sources)  # those of repositories are a plugin's
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
        tables = dict.fromkeys(column.table for plan in plans.all.values() for column in _columns_of(plan))
        sources = Sources(place, plans.files, [plans.files[table] for table in tables if table in plans.files])
        self._places = sources.places
        self._parts = {
            _part(plan.identifier, split, is_only=len(plans.chosen) == 1): (number, split)
            for number, plan in enumerate(plans.chosen)
            for split in plan.splits
        }
        digest = hashlib.sha256("\0".join([*sources.facts, ""]).encode() + document).hexdigest()
        name, version = f"croissant-{slug(metadata.name)}", f"{slug(metadata.version)}-{digest[:16]}"
        card = DatasetCard(name, version, _licence(metadata.license), metadata.url, metadata.cite_as)
        vars(self).update(
            card=card, splits=tuple(self._parts), sources=sources.definitions, __doc__=str(metadata.description or "")
        )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, plans = _understand(self._place, self._document)
        reader = RowReader(plans, raw, self._places)
        for number, plan in enumerate(plans.chosen):
            folders = {split: folder_of(prepared, _folder(part)) for part, (of, split) in self._parts.items() if of == number}
            with contextlib.ExitStack() as stack:
                writers = {split: stack.enter_context(ParquetWriter(folder, plan.schema)) for split, folder in folders.items()}
                for rows in reader.read(plan):
                    for split, columns in _divide(plan, rows).items():
                        if split not in writers:
                            where = plan.split and plan.split.where
                            raise ConfigError(f"{where} has the split {split!r:.80}, which the document does not list")
                        writers[split].append_columns(columns)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """The records of one split; pictures are decoded when they are read."""
        records = ParquetDataset(folder_of(prepared, _folder(split)))
        plan = _understand(self._place, self._document)[1].chosen[self._parts[split][0]]
        images = frozenset(column.field.name for column in plan.columns if column.is_image)
        return records.map(functools.partial(_decode_images, images)) if images else records


@functools.lru_cache(4)
def _understand(place: str, document: bytes) -> tuple[Any, Plans]:
    """The metadata of a document, and the plans of its record sets."""
    metadata = parse_document(place, document)
    return metadata, Plans(metadata)


def _columns_of(plan: Plan) -> list[Column]:
    """The columns of a record set, and those by which tables are joined."""
    return [*plan.columns, *(join.right for join in plan.joins)]


def _part(record_set: str, split: str, *, is_only: bool) -> str:
    return split if is_only else record_set if split in (EVERYTHING, record_set) else f"{record_set}/{split}"


def _divide(plan: Plan, rows: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, list[Any]]]:
    """The values of rows by split and name."""
    divided: dict[str, list[tuple[Any, ...]]] = {}
    position = None if plan.split is None else plan.columns.index(plan.split)
    for row in rows:
        divided.setdefault(EVERYTHING if position is None else str(row[position]), []).append(row)
    kept = [(number, column.field.name) for number, column in enumerate(plan.columns) if number != position]
    return {split: {name: [row[number] for row in part] for number, name in kept} for split, part in divided.items()}


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _decode(name, data) if name in names else data for name, data in sample.items()}


def _decode(name: str, data: Any) -> Any:
    """A picture; of a list of them, a list."""
    if data is None or isinstance(data, (list, np.ndarray)):
        return None if data is None else [_decode(name, each) for each in data]
    return decode_file(codec_of(type_of_bytes(data) or "png"), data, name)


def _folder(part: str) -> str:
    return f"records/{slug(part)}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def _licence(licences: Any) -> str | None:
    """As SPDX writes it, where it is a URL of SPDX or of Creative Commons."""
    found = []
    for each in licences or ():
        text = str(each if isinstance(each, str) else each.url or each.name)
        if commons := re.search(r"creativecommons\.org/licenses/([a-z-]+)/([\d.]+)", text):
            text = f"CC-{commons[1].upper()}-{commons[2]}"
        found.append(re.sub(r"^https?://(?:www\.)?spdx\.org/licenses/(.+?)(?:\.html|\.json)?$", r"\1", text))
    return " AND ".join(found) or None
