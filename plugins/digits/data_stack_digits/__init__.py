"""The handwritten digits of the UCI repository, as scikit-learn publishes them."""

from __future__ import annotations

import gzip

import numpy as np
import numpy.typing as npt

from data_stack import (
    DatasetCard,
    DatasetFactory,
    DatasetIteratorIF,
    PreparedResources,
    ResourceDefinition,
    Resources,
)
from data_stack.formats.csv import read_csv_matrix
from data_stack.formats.numpy_arrays import NumpyDatasetIterator, write_npy

__all__ = ["DigitsFactory", "Sample"]

Sample = tuple[npt.NDArray[np.uint8], int, int]
"""``(image, label, tag)``: a uint8 array of shape ``(8, 8)``, the digit, and the digit again."""

_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
_SOURCES = (
    "package:sklearn/datasets/data/digits.csv.gz",
    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.9.1/sklearn/datasets/data/digits.csv.gz",
    "https://cdn.jsdelivr.net/gh/scikit-learn/scikit-learn@1.9.1/sklearn/datasets/data/digits.csv.gz",
)

#: Number of the first rows of the file, which are ``train``; the other rows are ``test``.
_N_TRAIN = 1437

#: Number of the first columns of the file, which are pixels; the last column is the digit.
_N_PIXELS = 64


class DigitsFactory(DatasetFactory):
    """Handwritten digits of the UCI repository, 8 × 8 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(8, 8)`` with values from 0
    (paper) to 16 (ink), the digit as an int, and the digit again.

    The publisher defines no splits. Here the first 1,437 rows of the file (80 %) are ``train``, and
    the last 360 are ``test``.
    """

    card = DatasetCard(
        name="digits",
        version="1.0.0",
        license="CC-BY-4.0",
        homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        citation=(
            "E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits. UCI, 1998. "
            "https://doi.org/10.24432/C50P49"
        ),
    )
    sources = (
        ResourceDefinition("raw/digits.csv.gz", _SOURCES[0], sha256=_SHA256, mirrors=_SOURCES[1:]),
    )
    splits = ("train", "test")
    columns = ("image", "label", "tag")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn rows of 64 pixels and a label into two arrays for each split."""
        with raw["raw/digits.csv.gz"] as resource, gzip.GzipFile(fileobj=resource) as lines:
            rows = read_csv_matrix(lines, np.uint8)
        self._write_split("train", rows[:_N_TRAIN], prepared)
        self._write_split("test", rows[_N_TRAIN:], prepared)

    def _write_split(
        self, split: str, rows: npt.NDArray[np.uint8], prepared: PreparedResources
    ) -> None:
        """Write the images and the digits of some rows.

        Args:
            split: name of the split.
            rows: rows of the file, of shape ``(n, 65)``.
            prepared: stores the arrays.
        """
        images = rows[:, :_N_PIXELS].reshape(-1, 8, 8)
        with prepared.create(f"preprocessed/{split}/images.npy") as file:
            write_npy(file, images)
        labels = rows[:, _N_PIXELS].astype(np.int64)
        with prepared.create(f"preprocessed/{split}/targets.npy") as file:
            write_npy(file, labels)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF[Sample]:
        """Return the images and digits of one split. A row is read when it is asked for."""
        images = prepared[f"preprocessed/{split}/images.npy"]
        targets = prepared[f"preprocessed/{split}/targets.npy"]
        return NumpyDatasetIterator([images, targets, targets])
