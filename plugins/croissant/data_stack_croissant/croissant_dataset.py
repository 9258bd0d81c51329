"""A dataset that a Croissant document describes, whose records are prepared as Parquet."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack import (
    CatalogueDataset,
    DatasetCard,
    DatasetIteratorIF,
    PreparedResources,
    Resources,
)
from data_stack.codecs import codec_of
from data_stack.codecs.decoding import decode_file
from data_stack.codecs.registry import type_of_bytes
from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.io.folder import folder_of
from data_stack_croissant.document import parse_document
from data_stack_croissant.names import slug
from data_stack_croissant.record_set import EVERYTHING, RecordSet
from data_stack_croissant.record_sets import RecordSets
from data_stack_croissant.row_reader import RowReader
from data_stack_croissant.sources import Sources

#: Documents whose record sets are kept, as each use of a dataset needs them.
_MAX_KEPT_DOCUMENTS = 4


class CroissantDataset(CatalogueDataset):
    """A dataset of a Croissant document.

    Args:
        place: path or URL of the document.
        document: its bytes.
        storage_connector: the store.

    Raises:
        DatasetFileCorruptError, ConfigError, CatalogueError, MaliciousFilePathError: as for
            :func:`data_stack.from_croissant`.
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
        metadata, record_sets = _understand(place, document)
        sources = Sources(place, record_sets.files, record_sets.list_files())
        parts = _name_parts(record_sets.chosen)

        # Another document, or another state of a file without digest, is another version.
        facts = "\0".join([*sources.facts, ""]).encode()
        digest = hashlib.sha256(facts + document).hexdigest()
        card = DatasetCard(
            name=f"croissant-{slug(metadata.name)}",
            version=f"{slug(metadata.version)}-{digest[:16]}",
            license=_spdx_expression_of(metadata.license),
            homepage=metadata.url,
            citation=metadata.cite_as,
        )
        description = str(metadata.description or "")
        super().__init__(card, tuple(parts), sources.definitions, description)

        self.storage_connector = storage_connector
        self._place = place
        self._document = document
        self._places = sources.places
        self._parts = parts

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, record_sets = _understand(self._place, self._document)
        reader = RowReader(record_sets, raw, self._places)
        for number, record_set in enumerate(record_sets.chosen):
            with contextlib.ExitStack() as stack:
                writers = {}
                for part, (number_of_part, split) in self._parts.items():
                    if number_of_part == number:
                        folder = folder_of(prepared, _folder_of(part))
                        writer = ParquetWriter(folder, record_set.schema)
                        writers[split] = stack.enter_context(writer)
                for rows in reader.read(record_set):
                    _write_rows(record_set, rows, writers)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return the records of one split; pictures are decoded when they are read."""
        records = ParquetDataset(folder_of(prepared, _folder_of(split)))
        _, record_sets = _understand(self._place, self._document)
        number, _ = self._parts[split]
        images = frozenset(
            column.field.name
            for column in record_sets.chosen[number].columns
            if column.kind == "ImageObject"
        )
        if not images:
            return records
        return records.map(functools.partial(_decode_images, images))


@functools.lru_cache(_MAX_KEPT_DOCUMENTS)
def _understand(place: str, document: bytes) -> tuple[Any, RecordSets]:
    """Return the metadata and the record sets of a document.

    They are kept, as parsing takes seconds.
    """
    metadata = parse_document(place, document)
    return metadata, RecordSets(metadata)


def _name_parts(record_sets: Sequence[RecordSet]) -> dict[str, tuple[int, str]]:
    """Return the splits of the dataset, each with the number of its record set and its split there.

    Of several record sets, a split has the name of the record set before its own.
    """
    parts: dict[str, tuple[int, str]] = {}
    for number, record_set in enumerate(record_sets):
        for split in record_set.splits:
            if len(record_sets) == 1:
                name = split
            elif split in (EVERYTHING, record_set.identifier):
                name = record_set.identifier
            else:
                name = f"{record_set.identifier}/{split}"
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
    record_set: RecordSet, rows: Sequence[tuple[Any, ...]], writers: Mapping[str, ParquetWriter]
) -> None:
    """Write rows to the writers of their splits.

    Raises:
        ConfigError: a row has a split that the document does not list.
    """
    for split, rows_of_split in _divide(record_set, rows).items():
        if split not in writers:
            where = None if record_set.split is None else record_set.split.where
            raise ConfigError(
                f"{where} has the split {split!r:.80}, which the document does not list"
            )
        writers[split].append_columns(dict(_columns_of(record_set, rows_of_split)))


def _divide(
    record_set: RecordSet, rows: Sequence[tuple[Any, ...]]
) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the rows of each split."""
    if record_set.split is None:
        return {EVERYTHING: rows}
    position = record_set.columns.index(record_set.split)
    rows_by_split: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        rows_by_split.setdefault(str(row[position]), []).append(row)
    return rows_by_split


def _columns_of(
    record_set: RecordSet, rows: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield names and values of the columns, without the one of the split."""
    for position, column in enumerate(record_set.columns):
        if column is not record_set.split:
            yield column.field.name, [row[position] for row in rows]


# ---------------------------------------------------------------------- pictures


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample with the values of some columns as pictures."""
    decoded = dict(sample)
    for name in names & decoded.keys():
        decoded[name] = _decode_image(name, decoded[name])
    return decoded


def _decode_image(name: str, data: Any) -> Any:
    """Return a picture; of a list of pictures, a list; None for a missing one."""
    if data is None:
        return None
    if isinstance(data, (list, np.ndarray)):
        return [_decode_image(name, element) for element in data]
    return decode_file(codec_of(type_of_bytes(data) or "png"), data, name)
