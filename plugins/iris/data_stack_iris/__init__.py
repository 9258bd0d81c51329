"""Fisher's iris flowers, as scikit-learn publishes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack import (
    DatasetCard,
    DatasetFactory,
    DatasetIteratorIF,
    ResourceDefinition,
    Resources,
)
from data_stack.formats.csv import CSVDatasetIterator

__all__ = ["IrisFactory", "Sample"]

Sample = tuple[npt.NDArray[np.float64], int, int]
"""``(features, species, tag)``: float64 lengths in centimetres of shape ``(4,)``, and two ints."""

_SHA256 = "f13ffa8fdd56fd8e6c8d16d4081a3fbd3114bcd0aae4256c43205169cd9d1449"
_SOURCES = (
    "package:sklearn/datasets/data/iris.csv",
    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.9.1/sklearn/datasets/data/iris.csv",
    "https://cdn.jsdelivr.net/gh/scikit-learn/scikit-learn@1.9.1/sklearn/datasets/data/iris.csv",
)


class IrisFactory(DatasetFactory):
    """Fisher's iris flowers: four lengths of 150 flowers of three species.

    Samples are ``(features, species, tag)``: a float64 array of shape ``(4,)`` in centimetres, in
    the order of ``feature_names``; the species as an int, a position in ``class_names``; and the
    species again. There is one split, ``all``, as no division was published. The flowers are sorted
    by species.
    """

    card = DatasetCard(
        name="iris",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://archive.ics.uci.edu/dataset/53/iris",
        citation=(
            "R. A. Fisher: The use of multiple measurements in taxonomic problems, 1936. "
            "https://doi.org/10.24432/C56C76"
        ),
    )
    sources = (
        ResourceDefinition("raw/iris.csv", _SOURCES[0], sha256=_SHA256, mirrors=_SOURCES[1:]),
    )
    splits = ("all",)
    columns = ("features", "species", "tag")
    feature_names = ("sepal length", "sepal width", "petal length", "petal width")
    class_names = ("setosa", "versicolor", "virginica")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF[Sample]:
        """Return all flowers, which are the only split."""
        # The first line of the file is no header: it holds counts and the names of the classes.
        return CSVDatasetIterator(prepared["raw/iris.csv"], target=-1, header=False, skip_lines=1)
