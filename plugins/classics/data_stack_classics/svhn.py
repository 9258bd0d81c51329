"""SVHN: house numbers in street views, a digit each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_stack import DatasetCard, PreparedResources, ResourceDefinition, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack_classics.arrays import Array, ArraysFactory, read_rows
from data_stack_classics.classic import as_integers
from data_stack_classics.matlab import StoredArray, iterate_arrays

#: The files have this label for the digit 0.
_LABEL_OF_ZERO = 10

_URL = "http://ufldl.stanford.edu/housenumbers"

_CITATION = """@inproceedings{svhn,
  author = {Yuval Netzer and Tao Wang and Adam Coates and Alessandro Bissacco and Bo Wu \
and Andrew Y. Ng},
  title = {Reading Digits in Natural Images with Unsupervised Feature Learning},
  booktitle = {NIPS Workshop on Deep Learning and Unsupervised Feature Learning},
  year = {2011}
}"""


class SVHNFactory(ArraysFactory):
    """Digits of house numbers in street views, 32 × 32 pixels in color.

    For non-commercial use. Samples are ``(image, label, tag)``: a uint8 array of shape
    ``(32, 32, 3)``, the digit, and the digit again. The files have the label 10 for the digit 0.
    """

    card = DatasetCard(
        name="svhn",
        version="1.0.0",
        license="LicenseRef-non-commercial",
        homepage="http://ufldl.stanford.edu/housenumbers/",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/train.mat",
            f"{_URL}/train_32x32.mat",
            sha256="435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            size=182_040_794,
        ),
        ResourceDefinition(
            "raw/test.mat",
            f"{_URL}/test_32x32.mat",
            sha256="cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            size=64_275_384,
        ),
        ResourceDefinition(
            "raw/extra.mat",
            f"{_URL}/extra_32x32.mat",
            sha256="a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
            size=1_329_278_602,
        ),
    )
    splits = ("train", "test", "extra")
    n_samples = {"train": 73_257, "test": 26_032, "extra": 531_131}
    class_names = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store the images and the labels of each split block by block."""
        for split in prepared.steps(self.splits):
            self._write_split(f"raw/{split}.mat", split, raw, prepared)

    def _write_split(
        self, name: str, split: str, raw: Resources, prepared: PreparedResources
    ) -> None:
        """Write the images, the variable ``X``, and the labels, the variable ``y``.

        Raises:
            DatasetFileCorruptError: the file has other variables, or other shapes of these.
        """
        n_images = self.n_samples[split]
        missing_shapes = {"X": (32, 32, 3, n_images), "y": (n_images, 1)}
        with raw[name] as resource:
            for array in iterate_arrays(resource, name):
                expected_shape = missing_shapes.pop(array.name, None)
                if array.shape != expected_shape:
                    raise DatasetFileCorruptError(
                        f"{name!r} holds a variable {array.name!r:.80} of shape {array.shape}, "
                        f"expected {expected_shape or 'X and y, once each'}. Fetch it again"
                    )
                if array.name == "X":
                    self.write(prepared, split, "image", _iterate_images(array, name), name)
                else:
                    self.write(prepared, split, "label", _iterate_labels(array, name), name)
        if missing_shapes:
            raise DatasetFileCorruptError(
                f"{name!r} lacks the variables {', '.join(missing_shapes)}. Fetch it again"
            )


def _iterate_images(array: StoredArray, name: str) -> Iterator[Array]:
    """Yield images in blocks, uint8 of shape ``(n, 32, 32, 3)``.

    Args:
        array: images of MATLAB, of shape ``(32, 32, 3, n_images)``.
        name: name of the file, for messages.

    Raises:
        DatasetFileCorruptError: the pixels are not uint8.
    """
    if array.dtype != np.uint8:
        raise DatasetFileCorruptError(
            f"{name!r} has images of {array.dtype}, expected uint8. Fetch it again"
        )
    for block in _read_reversed(array, name):
        # From (image, color, column, row) to (image, row, column, color).
        yield block.transpose(0, 3, 2, 1)


def _iterate_labels(array: StoredArray, name: str) -> Iterator[Array]:
    """Yield labels as digits, int64 of shape ``(n_images,)``.

    Args:
        array: labels of MATLAB, of shape ``(n_images, 1)``, from 1 to 10.
        name: name of the file, for messages.

    Raises:
        DatasetFileCorruptError: a label is another number.
    """
    for block in _read_reversed(array, name):
        # The reversed array has one row, with all labels.
        labels = as_integers(name, block[0])
        if labels.size and (labels.min() < 1 or labels.max() > _LABEL_OF_ZERO):
            raise DatasetFileCorruptError(
                f"{name!r} has labels from {labels.min()} to {labels.max()}, "
                f"expected 1 to {_LABEL_OF_ZERO}. Fetch it again"
            )
        labels[labels == _LABEL_OF_ZERO] = 0
        yield labels


def _read_reversed(array: StoredArray, name: str) -> Iterator[Array]:
    """Yield the rows of an array whose axes are those of a variable of MATLAB in reverse.

    The first index of MATLAB's arrays runs fastest, but the last of ours.
    """
    return read_rows(array.stream, name, array.shape[::-1], array.dtype, is_last=False)
