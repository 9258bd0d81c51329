"""The datasets of scikit-learn: ``data_stack.load("sklearn:wine")``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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


@dataclass(frozen=True)
class _Facts:
    """What scikit-learn does not say in code.

    Attributes:
        title: one line of description.
        license: an SPDX identifier. Datasets of the UCI repository have its license.
    """

    title: str
    license: str


_FACTS: Final[Mapping[str, _Facts]] = {
    "breast_cancer": _Facts(
        "Breast cancer in Wisconsin: 30 features of cell nuclei",
        "CC-BY-4.0",
    ),
    "diabetes": _Facts(
        "Ten features of patients, and how far diabetes went in a year",
        "LicenseRef-unknown",
    ),
    "digits": _Facts("Handwritten digits of 8 × 8 pixels", "CC-BY-4.0"),
    "iris": _Facts("Iris: four lengths of three kinds of flowers", "CC-BY-4.0"),
    "linnerud": _Facts(
        "Linnerud: exercises and physiology of twenty men",
        "LicenseRef-unknown",
    ),
    "wine": _Facts("Wine: 13 chemical features of three cultivars", "CC-BY-4.0"),
}

_PAGES: Final = "https://scikit-learn.org/stable/modules/generated"

_VERSION_LENGTH: Final = 12


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """Return the catalogue of names such as ``sklearn:wine``."""
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
        dataset = ScikitLearnDataset(name)
        version = dataset.card.version
        if name.version not in (None, version):
            import sklearn

            raise RevisionNotFoundError(
                f"the installed scikit-learn {sklearn.__version__} has {name.plain} at the version "
                f"{version}, not {name.version!r:.60}: the values differ. Install the scikit-learn "
                f"of that version"
            )
        return dataset

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return the datasets whose name and title contain all words."""
        words = text.lower().split()
        entries = []
        for name, facts in _FACTS.items():
            searched_text = f"{name} {facts.title}".lower()
            if all(word in searched_text for word in words):
                entries.append(CatalogueEntry(f"sklearn:{name}", facts.title, facts.license))
        return entries[:limit]


class ScikitLearnDataset(CatalogueDataset):
    """A dataset of scikit-learn, with samples ``(features, target, target)``.

    Its version is a digest of its values.

    Args:
        name: name of the dataset.
    """

    columns = ("features", "target", "tag")

    #: The features, of shape ``(n, n_features)``, and the targets; int64 if they are classes.
    _columns: list[npt.NDArray[Any]]

    def __init__(self, name: CatalogueName) -> None:
        import sklearn.datasets  # here, as importing it takes a second

        function_name = f"load_{name.name}"
        loaded: Any = getattr(sklearn.datasets, function_name)()
        features = np.ascontiguousarray(loaded.data)
        targets = np.ascontiguousarray(loaded.target)
        facts = _FACTS[name.name]
        card = DatasetCard(
            name.folder,
            version=_digest_of(features, targets)[:_VERSION_LENGTH],
            license=facts.license,
            homepage=f"{_PAGES}/sklearn.datasets.{function_name}.html",
        )
        super().__init__(card, ["all"], description=facts.title)

        # On the object: these are class variables of a factory that an author writes.
        feature_names = tuple(str(feature) for feature in loaded.feature_names)
        self.feature_names = feature_names  # type: ignore[misc]
        are_classes = targets.dtype.kind in "iu"
        if are_classes:
            targets = targets.astype(np.int64)
            class_names = tuple(str(class_name) for class_name in loaded.target_names)
            self.class_names = class_names  # type: ignore[misc]
        self._columns = [features, targets]

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return all samples."""
        features, targets = self._columns
        return SequenceDatasetIterator([features, targets, targets])


def _digest_of(features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of all values as floats."""
    digest = hashlib.sha256()
    for column in (features, targets):
        digest.update(column.astype(float).tobytes())
    return digest.hexdigest()
