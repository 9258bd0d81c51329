"""``data_stack.from_croissant``: a dataset that others describe in Croissant, as samples."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.decoding import decode_file
from data_stack.codecs.registry import codec_of, type_of_bytes
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.folder import folder_of
from data_stack.plugins.manager import default_manager
from data_stack.repository.croissant.document import parse_document, read_document
from data_stack.repository.croissant.plans import EVERYTHING, Plan, Plans
from data_stack.repository.croissant.rows import RowReader
from data_stack.repository.croissant.sources import Sources, slug
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.named_dataset import NamedDataset
from data_stack.show.splits import Splits


def from_croissant(
    place: str | os.PathLike[str], storage: Storage | None = None, *, progress: bool | None = None
) -> Any:
    """Return the samples of a dataset that a Croissant document describes.

    They are dicts by the names of its fields.

    ::

        flowers = data_stack.from_croissant("https://example.org/flowers/croissant.json")
        flowers["train"][0]                    # {"petal": 1.4, "species": "setosa"}

    The first use retrieves the files into the store, checks their digests and sizes, and turns the
    records into Parquet there, from which they are then read lazily. mlcroissant validates the
    document; it downloads and unpacks nothing.

    Args:
        place: path or URL of the document.
        storage: where the dataset is kept; None for the default store.
        progress: draw bars; see :func:`data_stack.load`.

    Returns:
        One iterator; or a dict of them, where a field refers to a list of splits, by the names of
        the splits, and where there are several record sets, by their identifiers, followed by ``/``
        and the split.

    Raises:
        DatasetFileCorruptError: the document is not valid.
        ConfigError: a field needs something that is not read; it is named with its record set. Or a
            FileSet has no files, or too many.
        CatalogueError, DatasetNotFoundError: the Hub does not list the files of a repository that
            the document names.
        MaliciousFilePathError: the document names files outside of its folder.
        RetrievalError: a file cannot be retrieved, or differs from its digest in the document.
        PreparationError: a file does not match the document; the cause names the field.
        MissingDependencyError: mlcroissant is not installed.
    """
    path_or_url, document = read_document(place)
    factory = CroissantFactory(path_or_url, document, as_storage_connector(storage))
    # Files in repositories are retrieved by a plugin.
    default_manager().register_retrievers(definition.source for definition in factory.sources)
    dataset = NamedDataset(factory.card.name, factory)
    loaded = {split: dataset.load(split, progress=progress) for split in factory.splits}
    if list(loaded) == [EVERYTHING]:
        return loaded[EVERYTHING]
    return Splits(loaded)


class CroissantFactory(DatasetFactory):
    """A dataset of a Croissant document.

    Args:
        place: path or URL of the document.
        document: its bytes.
        storage_connector: the store.

    Raises:
        DatasetFileCorruptError, ConfigError, CatalogueError, MaliciousFilePathError: as for
            :func:`from_croissant`.
    """

    # Plain attributes, by which an interrupted preparation recognizes its own.

    #: Path or URL of the document.
    _place: str
    #: Its bytes.
    _document: bytes
    #: Name and path of the resources of each FileObject and FileSet, see :class:`Sources`.
    _places: dict[str, list[tuple[str, str]]]
    #: By split of this dataset the number of the record set, and the split of its rows.
    _parts: dict[str, tuple[int, str]]

    def __init__(self, place: str, document: bytes, storage_connector: Any = None) -> None:
        super().__init__(storage_connector)
        self._place = place
        self._document = document
        metadata, plans = _understand(place, document)
        sources = Sources(place, plans.files, _list_files(plans))
        self._places = sources.places
        self._parts = _name_parts(plans)

        facts = "\0".join([*sources.facts, ""]).encode()
        digest = hashlib.sha256(facts + document).hexdigest()
        # Of this object, not of the class: each document has its own.
        self.card = DatasetCard(  # type: ignore[misc]
            name=f"croissant-{slug(metadata.name)}",
            version=f"{slug(metadata.version)}-{digest[:16]}",
            license=_spdx_expression_of(metadata.license),
            homepage=metadata.url,
            citation=metadata.cite_as,
        )
        self.splits = tuple(self._parts)  # type: ignore[misc]
        self.sources = sources.definitions  # type: ignore[misc]
        self.__doc__ = str(metadata.description or "")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, plans = _understand(self._place, self._document)
        reader = RowReader(plans, raw, self._places)
        for number, plan in enumerate(plans.chosen):
            with contextlib.ExitStack() as stack:
                writers = {}
                for part, (number_of_part, split) in self._parts.items():
                    if number_of_part == number:
                        folder = folder_of(prepared, _folder_of(part))
                        writer = ParquetWriter(folder, plan.schema)
                        writers[split] = stack.enter_context(writer)
                for rows in reader.read(plan):
                    _write_rows(plan, rows, writers)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return the records of one split; pictures are decoded when they are read."""
        records = ParquetDataset(folder_of(prepared, _folder_of(split)))
        _, plans = _understand(self._place, self._document)
        number, _ = self._parts[split]
        images = frozenset(
            column.field.name
            for column in plans.chosen[number].columns
            if column.kind == "ImageObject"
        )
        if not images:
            return records
        return records.map(functools.partial(_decode_images, images))


@functools.lru_cache(4)
def _understand(place: str, document: bytes) -> tuple[Any, Plans]:
    """Return the metadata of a document, and the plans of its record sets.

    They are kept, as each use of a dataset needs them, and parsing takes seconds.
    """
    metadata = parse_document(place, document)
    return metadata, Plans(metadata)


def _list_files(plans: Plans) -> list[Any]:
    """Return the FileObjects and FileSets that the record sets read, in their order."""
    tables: dict[str | None, None] = {}
    for plan in plans.all.values():
        for column in plan.columns:
            tables[column.table] = None
        for join in plan.joins:
            tables[join.right.table] = None
    return [plans.files[table] for table in tables if table in plans.files]


def _name_parts(plans: Plans) -> dict[str, tuple[int, str]]:
    """Return the splits of the dataset, each with the number of its record set and its split there.

    Of several record sets, a split has the name of the record set before its own.
    """
    parts: dict[str, tuple[int, str]] = {}
    for number, plan in enumerate(plans.chosen):
        for split in plan.splits:
            if len(plans.chosen) == 1:
                name = split
            elif split in (EVERYTHING, plan.identifier):
                name = plan.identifier
            else:
                name = f"{plan.identifier}/{split}"
            parts[name] = (number, split)
    return parts


def _folder_of(part: str) -> str:
    """Return the folder with the Parquet files of a split."""
    digest = hashlib.sha256(part.encode()).hexdigest()
    return f"records/{slug(part)}-{digest[:8]}"


def _spdx_expression_of(licenses: Any) -> str | None:
    """Return licenses as SPDX writes them, where they are URLs of SPDX or of Creative Commons."""
    expressions = []
    for license_ in licenses or ():
        text = str(license_ if isinstance(license_, str) else license_.url or license_.name)
        commons = re.search(r"creativecommons\.org/licenses/([a-z-]+)/([\d.]+)", text)
        if commons is not None:
            text = f"CC-{commons[1].upper()}-{commons[2]}"
        spdx = re.fullmatch(r"https?://(?:www\.)?spdx\.org/licenses/(.+?)(?:\.html|\.json)?", text)
        if spdx is not None:
            text = spdx[1]
        expressions.append(text)
    return " AND ".join(expressions) or None


# ---------------------------------------------------------------------- rows


def _write_rows(
    plan: Plan, rows: Sequence[tuple[Any, ...]], writers: Mapping[str, ParquetWriter]
) -> None:
    """Write rows to the writers of their splits.

    Raises:
        ConfigError: a row has a split that the document does not list.
    """
    for split, rows_of_split in _divide(plan, rows).items():
        if split not in writers:
            where = None if plan.split is None else plan.split.where
            raise ConfigError(
                f"{where} has the split {split!r:.80}, which the document does not list"
            )
        writers[split].append_columns(dict(_columns_of(plan, rows_of_split)))


def _divide(plan: Plan, rows: Sequence[tuple[Any, ...]]) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the rows of each split."""
    if plan.split is None:
        return {EVERYTHING: rows}
    position = plan.columns.index(plan.split)
    rows_by_split: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        rows_by_split.setdefault(str(row[position]), []).append(row)
    return rows_by_split


def _columns_of(plan: Plan, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield names and values of the columns, without the one of the split."""
    for position, column in enumerate(plan.columns):
        if column is not plan.split:
            yield column.field.name, [row[position] for row in rows]


# ---------------------------------------------------------------------- pictures


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _decode_image(name, value) if name in names else value
        for name, value in sample.items()
    }


def _decode_image(name: str, data: Any) -> Any:
    """Return a picture; of a list of pictures, a list; None for a missing one."""
    if data is None:
        return None
    if isinstance(data, (list, np.ndarray)):
        return [_decode_image(name, element) for element in data]
    return decode_file(codec_of(type_of_bytes(data) or "png"), data, name)
