"""OpenML as a catalogue."""

from __future__ import annotations

from data_stack import Catalogue, CatalogueEntry, CatalogueName, StorageConnector
from data_stack.exception import DatasetNotFoundError, RevisionNotFoundError
from data_stack_openml.api import describe_dataset, find_datasets, list_features
from data_stack_openml.openml_dataset import OpenMLDataset

#: How many versions of a dataset are looked at.
_MAX_VERSIONS = 100


class OpenMLCatalogue(Catalogue):
    """The datasets of OpenML, from the server ``OPENML_SERVER`` or openml.org."""

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> OpenMLDataset:
        """Return the dataset; for a name without version, the newest active one."""
        number = name.name
        if not number.isdecimal():
            number = _number_of(name)
        description = describe_dataset(number, str(name))
        features = list_features(number, str(name))
        dataset = OpenMLDataset(name, description, features)
        if name.version not in (None, dataset.card.version):
            raise RevisionNotFoundError(
                f"openml:{number} has version {dataset.card.version}, not {name.version!r:.40}"
            )
        return dataset

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return all versions of the dataset of exactly this name; the API has no other search."""
        entries = []
        for listed in find_datasets(text, limit):
            name = f"openml:{listed['name']}@{listed['version']}"
            title = f"number {listed['did']}, {listed.get('status', '')}"
            entries.append(CatalogueEntry(name, title))
        return entries


def _number_of(name: CatalogueName) -> str:
    """Return the number of a dataset that is given by its name, and perhaps its version.

    Raises:
        RevisionNotFoundError: there is no such version.
        DatasetNotFoundError: there is no such dataset.
    """
    datasets = find_datasets(name.name, _MAX_VERSIONS, name.version)
    if datasets:
        newest = max(datasets, key=lambda dataset: float(dataset["version"]))
        return str(newest["did"])

    if name.version is not None:
        other_versions = [
            str(dataset["version"]) for dataset in find_datasets(name.name, _MAX_VERSIONS)
        ]
        if other_versions:
            raise RevisionNotFoundError(
                f"OpenML has no {name}; it has the versions {', '.join(other_versions)}"
            )
    raise DatasetNotFoundError(
        f"OpenML has no active dataset {name}; search its pages, and use the number of the "
        f"dataset: openml:61"
    )
