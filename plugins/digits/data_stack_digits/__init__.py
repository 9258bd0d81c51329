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
"""The image, and twice the digit."""

_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
_SOURCES = (
    "package:sklearn/datasets/data/digits.csv.gz",
    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.9.1/sklearn/datasets/data/digits.csv.gz",
    "https://cdn.jsdelivr.net/gh/scikit-learn/scikit-learn@1.9.1/sklearn/datasets/data/digits.csv.gz",
)

#: Rows of the file that are ``train``; the others are ``test``.
_N_TRAIN = 1437


class DigitsFactory(DatasetFactory):
    """Handwritten digits of the UCI repository, 8 × 8 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(8, 8)`` with values from 0
    (paper) to 16 (ink), and twice the digit as an int. The file has one order and no official
    split: the first 1,437 of its rows (80 %) are ``train``, the last 360 are ``test``.
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
        train_rows, test_rows = np.split(rows, [_N_TRAIN])
        self._write_split("train", train_rows, prepared)
        self._write_split("test", test_rows, prepared)

    def _write_split(
        self, split: str, rows: npt.NDArray[np.uint8], prepared: PreparedResources
    ) -> None:
        with prepared.create(f"preprocessed/{split}/images.npy") as file:
            write_npy(file, rows[:, :64].reshape(-1, 8, 8))
        with prepared.create(f"preprocessed/{split}/targets.npy") as file:
            write_npy(file, rows[:, 64].astype(np.int64))

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF[Sample]:
        """Return the images and digits of one split; rows are read when they are asked for."""
        images = prepared[f"preprocessed/{split}/images.npy"]
        targets = prepared[f"preprocessed/{split}/targets.npy"]
        return NumpyDatasetIterator([images, targets, targets])
