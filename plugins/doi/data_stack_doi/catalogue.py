"""The records that DOIs name, as a catalogue."""

from __future__ import annotations

from data_stack import Catalogue, CatalogueEntry, CatalogueName, StorageConnector
from data_stack.exception import RevisionNotFoundError
from data_stack_doi.record_dataset import RecordDataset
from data_stack_doi.resolver import find_record


class DOICatalogue(Catalogue):
    """Records of Zenodo, figshare and Dataverse, by their DOI."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> RecordDataset:
        """Return the dataset of a record's files, or of the one file after ``#``."""
        record = find_record(name.name)
        dataset = RecordDataset(name, record)
        if name.version not in (None, dataset.card.version):
            raise RevisionNotFoundError(
                f"{name.plain} now has version {dataset.card.version}, not {name.version!r:.40}"
            )
        return dataset

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return the record with this DOI; DOIs cannot be searched by words."""
        if not text.startswith("10."):
            return []
        record = find_record(text)
        known_sizes = [file.size for file in record.files if file.size is not None]
        size = sum(known_sizes) if known_sizes else None
        return [CatalogueEntry(f"doi:{text}", record.title, record.license, size)]
