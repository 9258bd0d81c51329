"""EMNIST: handwritten digits and letters, in six datasets."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Iterator
from typing import IO

from data_stack import DatasetCard, ResourceDefinition, Resources
from data_stack.io.archives import open_archive, open_decompressed
from data_stack_classics.idx import IdxFactory

_DIGITS = tuple(string.digits)

#: The class of the label 0, which no letter has: the files count letters from 1.
_NO_LETTER = ("N/A",)
_LETTERS = tuple(string.ascii_lowercase)

#: Classes of the datasets in which a letter that looks alike in both cases is one class.
_MERGED_CLASSES = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")

_CITATION = r"""@inproceedings{emnist,
  author = {Gregory Cohen and Saeed Afshar and Jonathan Tapson and Andr{\'e} van Schaik},
  title = {{EMNIST}: Extending {MNIST} to handwritten letters},
  booktitle = {International Joint Conference on Neural Networks},
  year = {2017},
  doi = {10.1109/IJCNN.2017.7966217}
}"""


def _make_card(name: str) -> DatasetCard:
    """Return the card of one of the six datasets, whose cards differ in the name alone."""
    return DatasetCard(
        name=name,
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        citation=_CITATION,
    )


class EMNISTFactory(IdxFactory):
    """One of the datasets of EMNIST, whose files are in one archive.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(28, 28)``; the label, a position
    in ``class_names``; and the label again. Images are transposed, as in the files, in torchvision
    and in TensorFlow Datasets: ``image.T`` stands upright.
    """

    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/gzip.zip",
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            size=561_753_746,
        ),
    )
    splits = ("train", "test")

    @contextlib.contextmanager
    def open_file(self, raw: Resources, split: str, part: str) -> Iterator[IO[bytes]]:
        """Open a file of the archive. The files in it are compressed once more, one by one."""
        n_dimensions = 3 if part == "images" else 1
        name = f"gzip/{self.card.name}-{split}-{part}-idx{n_dimensions}-ubyte.gz"
        with raw["raw/gzip.zip"] as resource, open_archive(resource) as archive:
            with archive.open(name) as member, open_decompressed(member) as stream:
                yield stream


class EMNISTByClassFactory(EMNISTFactory):
    """All of EMNIST: handwritten digits and letters in 62 classes of different sizes.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-byclass")
    n_samples = {"train": 697_932, "test": 116_323}
    class_names = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)


class EMNISTByMergeFactory(EMNISTFactory):
    """All of EMNIST in 47 classes of different sizes, one for letters alike in both cases.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-bymerge")
    n_samples = {"train": 697_932, "test": 116_323}
    class_names = _MERGED_CLASSES


class EMNISTBalancedFactory(EMNISTFactory):
    """A part of EMNIST in 47 classes of one size, one for letters alike in both cases.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-balanced")
    n_samples = {"train": 112_800, "test": 18_800}
    class_names = _MERGED_CLASSES


class EMNISTLettersFactory(EMNISTFactory):
    """Handwritten letters of EMNIST in 26 classes of one size, one for both cases.

    Labels begin with 1, as in the files.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-letters")
    n_samples = {"train": 124_800, "test": 20_800}
    class_names = _NO_LETTER + _LETTERS


class EMNISTDigitsFactory(EMNISTFactory):
    """Handwritten digits of EMNIST in classes of one size, 28 × 28 pixels.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-digits")
    n_samples = {"train": 240_000, "test": 40_000}
    class_names = _DIGITS


class EMNISTMNISTFactory(EMNISTFactory):
    """Handwritten digits of EMNIST, as many as in MNIST, 28 × 28 pixels.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed:
    ``image.T`` stands upright.
    """

    card = _make_card("emnist-mnist")
    n_samples = {"train": 60_000, "test": 10_000}
    class_names = _DIGITS
