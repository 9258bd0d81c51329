"""A dataset that a Croissant document describes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from data_stack_croissant.license_of_document import spdx_expression_of
from data_stack_croissant.names import slug
from data_stack_croissant.record_set import EVERYTHING, RecordSet
from data_stack_croissant.record_sets import RecordSets
from data_stack_croissant.row_reader import RowReader
from data_stack_croissant.sources import Sources

#: Number of documents whose record sets are kept.
_MAX_KEPT_DOCUMENTS = 4


@dataclass(frozen=True)
class SplitOfRecordSet:
    """A split of a record set, which is a split of the dataset under a name of its own.

    Attributes:
        number: position of the record set among those of the document that have samples.
        split: name of the split in the record set.
    """

    number: int
    split: str


class CroissantDataset(CatalogueDataset):
    """A dataset that a Croissant document describes. Its records are prepared as Parquet.

    Args:
        place: path or URL of the document.
        document: the bytes of the document.
        storage_connector: the store of the dataset.

    Raises:
        DatasetFileCorruptError: the document is not valid.
        ConfigError: the document needs something that is not read; the message names record set and
            field.
        CatalogueError: a repository that the document names cannot be listed.
        MaliciousFilePathError: the document names files outside of its folder.
    """

    # An interrupted preparation compares these attributes to find out whether it may go on. So they
    # are plain data; the record sets are parsed again.

    #: Path or URL of the document.
    _place: str
    #: The bytes of the document.
    _document: bytes
    #: The resources of each FileObject and FileSet, see :class:`Sources`.
    _places: dict[str, list[tuple[str, str]]]
    #: The splits of the dataset by their names.
    _named_splits: dict[str, SplitOfRecordSet]

    def __init__(self, place: str, document: bytes, storage_connector: Any = None) -> None:
        metadata, record_sets = _parse(place, document)
        named_splits = _name_splits(record_sets.chosen)
        sources = Sources(place, record_sets.files, record_sets.list_files())

        # Another document is another version. So is another state of a file without digest.
        facts = "\0".join([*sources.facts, ""]).encode()
        digest = hashlib.sha256(facts + document).hexdigest()
        card = DatasetCard(
            name=f"croissant-{slug(metadata.name)}",
            version=f"{slug(metadata.version)}-{digest[:16]}",
            license=spdx_expression_of(metadata.license),
            homepage=metadata.url,
            citation=metadata.cite_as,
        )
        description = str(metadata.description or "")
        super().__init__(card, tuple(named_splits), sources.definitions, description)

        self.storage_connector = storage_connector
        self._place = place
        self._document = document
        self._places = sources.places
        self._named_splits = named_splits

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the records into Parquet, a folder for each split."""
        _, record_sets = _parse(self._place, self._document)
        reader = RowReader(record_sets, raw, self._places)
        for number, record_set in enumerate(record_sets.chosen):
            with contextlib.ExitStack() as stack:
                # The writers by the splits of the record set.
                writers: dict[str, ParquetWriter] = {}
                for name, named_split in self._named_splits.items():
                    if named_split.number == number:
                        folder = folder_of(prepared, _folder_of(name))
                        writer = ParquetWriter(folder, record_set.schema)
                        writers[named_split.split] = stack.enter_context(writer)
                for rows in reader.read(record_set):
                    _write_rows(record_set, rows, writers)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return the records of one split. A picture is decoded when its record is read."""
        records = ParquetDataset(folder_of(prepared, _folder_of(split)))
        _, record_sets = _parse(self._place, self._document)
        record_set = record_sets.chosen[self._named_splits[split].number]
        image_names = set()
        for column in record_set.columns:
            if column.kind == "ImageObject":
                image_names.add(column.field.name)
        if not image_names:
            return records
        return records.map(functools.partial(_decode_images, frozenset(image_names)))


@functools.lru_cache(_MAX_KEPT_DOCUMENTS)
def _parse(place: str, document: bytes) -> tuple[Any, RecordSets]:
    """Return mlcroissant's metadata and the record sets of a document.

    The last ones are kept, as parsing takes seconds and each use of a dataset needs them.
    """
    metadata = parse_document(place, document)
    return metadata, RecordSets(metadata)


def _name_splits(record_sets: Sequence[RecordSet]) -> dict[str, SplitOfRecordSet]:
    """Return the splits of the dataset by their names.

    They are the splits of the record set. If there are several record sets, a name begins with that
    of the record set.

    Raises:
        ConfigError: two splits have one name.
    """
    splits: dict[str, SplitOfRecordSet] = {}
    for number, record_set in enumerate(record_sets):
        for split in record_set.splits:
            if len(record_sets) == 1:
                name = split
            elif split in (EVERYTHING, record_set.identifier):
                name = record_set.identifier
            else:
                name = f"{record_set.identifier}/{split}"
            named_split = SplitOfRecordSet(number, split)
            if splits.setdefault(name, named_split) != named_split:
                raise ConfigError(
                    f"the record set {record_set.identifier!r:.80} has the split {split!r:.80}, "
                    f"but another one is already called {name!r:.160}; rename it in the document"
                )
    return splits


def _folder_of(split: str) -> str:
    """Return the folder with the Parquet files of a split of the dataset."""
    digest = hashlib.sha256(split.encode()).hexdigest()
    return f"records/{slug(split)}-{digest[:8]}"


def _write_rows(
    record_set: RecordSet, rows: Sequence[tuple[Any, ...]], writers: Mapping[str, ParquetWriter]
) -> None:
    """Write rows to the writers of their splits.

    Args:
        record_set: the record set of the rows.
        rows: rows with the values of all columns, in their order.
        writers: a writer for each split of the record set.

    Raises:
        ConfigError: a row has a split that the document does not list.
    """
    for split, rows_of_split in _group_by_split(record_set, rows).items():
        if split not in writers:
            where = None if record_set.split is None else record_set.split.where
            raise ConfigError(
                f"{where} has the split {split!r:.80}, which the document does not list"
            )
        columns = {}
        for position, column in enumerate(record_set.columns):
            if column is not record_set.split:
                columns[column.field.name] = [row[position] for row in rows_of_split]
        writers[split].append_columns(columns)


def _group_by_split(
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


# ---------------------------------------------------------------------- pictures

# The name of this function and of its module are in the fingerprint of datasets with pictures. So
# it stays here.


def _decode_images(names: frozenset[str], sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample with the pictures of some columns as arrays.

    Args:
        names: names of the columns.
        sample: a sample whose pictures are bytes of files.
    """
    decoded = dict(sample)
    for name in names & decoded.keys():
        decoded[name] = _decode_image(name, decoded[name])
    return decoded


def _decode_image(name: str, data: Any) -> Any:
    """Return the picture of a file, a list for a list of files, or None for a missing file."""
    if data is None:
        return None
    if isinstance(data, (list, np.ndarray)):
        return [_decode_image(name, element) for element in data]
    # Bytes that begin like no format are given to some codec, whose error says so.
    return decode_file(codec_of(type_of_bytes(data) or "png"), data, name)
