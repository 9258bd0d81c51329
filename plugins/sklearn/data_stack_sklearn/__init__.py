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
class _Description:
    """The title and the license of a dataset, which scikit-learn has only in texts for people.

    Attributes:
        title: one line of text.
        license: an SPDX identifier. Datasets of the UCI repository have the license of that
            repository.
    """

    title: str
    license: str


_DESCRIPTIONS: Final[Mapping[str, _Description]] = {
    "breast_cancer": _Description(
        "Breast cancer in Wisconsin: 30 features of cell nuclei",
        "CC-BY-4.0",
    ),
    "diabetes": _Description(
        "Ten features of patients, and how far diabetes went in a year",
        "LicenseRef-unknown",
    ),
    "digits": _Description("Handwritten digits of 8 × 8 pixels", "CC-BY-4.0"),
    "iris": _Description("Iris: four lengths of three kinds of flowers", "CC-BY-4.0"),
    "linnerud": _Description(
        "Linnerud: exercises and physiology of twenty men",
        "LicenseRef-unknown",
    ),
    "wine": _Description("Wine: 13 chemical features of three cultivars", "CC-BY-4.0"),
}

#: Where the functions of scikit-learn are described.
_DOCUMENTATION: Final = "https://scikit-learn.org/stable/modules/generated"

#: Number of hexadecimal digits of a version, which are the first ones of a digest.
_N_VERSION_DIGITS: Final = 12


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """Return the catalogue of names such as ``sklearn:wine``."""
    return {"sklearn": ScikitLearnCatalogue()}


class ScikitLearnCatalogue(Catalogue):
    """The datasets inside the package scikit-learn; no network is needed."""

    def find(
        self, name: CatalogueName, store: StorageConnector | None = None
    ) -> ScikitLearnDataset:
        """Return a dataset with the values of the installed scikit-learn.

        Args:
            name: name of the dataset, such as ``sklearn:wine``.
            store: not used, as no network is needed.

        Raises:
            DatasetNotFoundError: scikit-learn has no such dataset.
            RevisionNotFoundError: the name has a version, and the installed scikit-learn has other
                values.
        """
        dataset = ScikitLearnDataset(name)
        version = dataset.card.version
        if name.version is not None and name.version != version:
            import sklearn

            raise RevisionNotFoundError(
                f"the installed scikit-learn {sklearn.__version__} has {name.plain} at the version "
                f"{version}, not {name.version!r:.60}: the values differ. Install the scikit-learn "
                f"of that version"
            )
        return dataset

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return the datasets whose name and title contain all words of a text.

        Args:
            text: words, with spaces between them, in small or capital letters.
            limit: maximum number of datasets.
        """
        words = text.lower().split()
        entries = []
        for name, description in _DESCRIPTIONS.items():
            searched_text = f"{name} {description.title}".lower()
            if all(word in searched_text for word in words):
                entry = CatalogueEntry(f"sklearn:{name}", description.title, description.license)
                entries.append(entry)
        return entries[:limit]


class ScikitLearnDataset(CatalogueDataset):
    """A dataset of scikit-learn, whose version is a digest of its values.

    Samples are ``(features, target, tag)``: a float64 array of shape ``(n_features,)``, the target,
    and the target again. The target is an int if it is a class, else a float or a float64 array.

    Args:
        name: name of the dataset, such as ``sklearn:wine``.

    Raises:
        DatasetNotFoundError: scikit-learn has no such dataset.
    """

    columns = ("features", "target", "tag")

    #: The features of all samples, of shape ``(n_samples, n_features)``.
    _features: npt.NDArray[Any]

    #: The targets of all samples: int64 if they are classes, else float64.
    _targets: npt.NDArray[Any]

    def __init__(self, name: CatalogueName) -> None:
        if name.name not in _DESCRIPTIONS or name.part is not None:
            raise DatasetNotFoundError(
                f"scikit-learn has no dataset {name.plain!r:.80}; it has {', '.join(_DESCRIPTIONS)}"
            )
        import sklearn.datasets  # here, as importing it takes a second

        function_name = f"load_{name.name}"
        loaded: Any = getattr(sklearn.datasets, function_name)()
        features = np.ascontiguousarray(loaded.data)
        targets = np.ascontiguousarray(loaded.target)
        description = _DESCRIPTIONS[name.name]
        card = DatasetCard(
            name.folder,
            version=_digest_of(features, targets)[:_N_VERSION_DIGITS],
            license=description.license,
            homepage=f"{_DOCUMENTATION}/sklearn.datasets.{function_name}.html",
        )
        super().__init__(card, ["all"], description=description.title)

        # A factory of an author has these as class variables. This class serves several datasets,
        # so each object has its own.
        feature_names = tuple(str(feature) for feature in loaded.feature_names)
        self.feature_names = feature_names  # type: ignore[misc]
        are_classes = targets.dtype.kind in "iu"
        if are_classes:
            targets = targets.astype(np.int64)
            class_names = tuple(str(class_name) for class_name in loaded.target_names)
            self.class_names = class_names  # type: ignore[misc]
        self._features = features
        self._targets = targets

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return all samples, which are the only split."""
        tags = self._targets
        return SequenceDatasetIterator([self._features, self._targets, tags])


def _digest_of(features: npt.NDArray[Any], targets: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of all values as float64, in hexadecimal digits.

    The dtypes are left out, as those of integers differ between platforms.
    """
    digest = hashlib.sha256()
    for column in (features, targets):
        digest.update(column.astype(float).tobytes())
    return digest.hexdigest()
