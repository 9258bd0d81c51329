"""The datasets of scikit-learn: ``data_stack.load("sklearn:wine")``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack import (
    Catalogue,
    CatalogueDataset,
    CatalogueEntry,
    CatalogueName,
    DatasetCard,
    DatasetIteratorIF,
    Resources,
    SequenceDatasetIterator,
    StorageConnector,
)
from data_stack.exception import DatasetNotFoundError, RevisionNotFoundError
from data_stack.plugins import hookimpl

__all__ = ["ScikitLearnCatalogue", "ScikitLearnDataset"]

#: Titles and licenses; datasets from the UCI repository have its licenses.
_FACTS: Final[Mapping[str, tuple[str, str]]] = {
    "breast_cancer": ("Breast cancer in Wisconsin: 30 features of cell nuclei", "CC-BY-4.0"),
    "diabetes": (
        "Ten features of patients, and how far diabetes went in a year",
        "LicenseRef-unknown",
    ),
    "digits": ("Handwritten digits of 8 × 8 pixels", "CC-BY-4.0"),
    "iris": ("Iris: four lengths of three kinds of flowers", "CC-BY-4.0"),
    "linnerud": ("Linnerud: exercises and physiology of twenty men", "LicenseRef-unknown"),
    "wine": ("Wine: 13 chemical features of three cultivars", "CC-BY-4.0"),
}


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """``sklearn:name``."""
    return {"sklearn": ScikitLearnCatalogue()}


class ScikitLearnCatalogue(Catalogue):
    """The datasets inside the package scikit-learn; no network is needed."""

    def find(
        self, name: CatalogueName, store: StorageConnector | None = None
    ) -> ScikitLearnDataset:
        """Return the dataset at the version of the installed scikit-learn."""
        if name.name not in _FACTS or name.part is not None:
            raise DatasetNotFoundError(
                f"scikit-learn has no dataset {name.plain!r:.80}; it has {', '.join(_FACTS)}"
            )
        found = ScikitLearnDataset(name)
        if name.version not in (None, found.card.version):
            import sklearn

            raise RevisionNotFoundError(
                f"the installed scikit-learn {sklearn.__version__} has {name.plain} at the version {found.card.version}, not "
                f"{name.version!r:.60}: the values differ. Install the scikit-learn of that version"
            )
        return found

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return the datasets whose name and title contain all words."""
        words = text.lower().split()
        found = [
            (name, *facts)
            for name, facts in _FACTS.items()
            if all(word in f"{name} {facts[0]}".lower() for word in words)
        ]
        return [
            CatalogueEntry(f"sklearn:{name}", title, license_name)
            for name, title, license_name in found[:limit]
        ]


class ScikitLearnDataset(CatalogueDataset):
    """A dataset of scikit-learn, with samples ``(features, target, target)``.

    Args:
        name: name of the dataset.
    """

    columns = ("features", "target", "tag")

    def __init__(self, name: CatalogueName) -> None:
        import sklearn.datasets  # here, as importing it takes a second

        loaded: Any = getattr(sklearn.datasets, f"load_{name.name}")()
        self._columns = [np.ascontiguousarray(loaded.data), np.ascontiguousarray(loaded.target)]
        digest = hashlib.sha256(
            b"".join(array.astype(float).tobytes() for array in self._columns)
        ).hexdigest()
        title, license_name = _FACTS[name.name]
        page = f"https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_{name.name}.html"
        super().__init__(
            DatasetCard(name.folder, digest[:12], license_name, page), ["all"], description=title
        )
        if self._columns[1].dtype.kind in "iu":
            self._columns[1] = self._columns[1].astype(np.int64)
            vars(self)["class_names"] = tuple(map(str, loaded.target_names))
        vars(self)["feature_names"] = tuple(map(str, loaded.feature_names))

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return all samples."""
        return SequenceDatasetIterator([*self._columns, self._columns[1]])
