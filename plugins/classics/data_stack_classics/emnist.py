"""EMNIST: handwritten digits and letters, in six datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO

from data_stack import Resources
from data_stack.io.archives import open_archive, open_decompressed
from data_stack_classics.idx import IdxFactory


class EMNISTFactory(IdxFactory):
    """Samples ``(image, label, tag)``: uint8 of shape ``(28, 28)``, and twice the position in ``class_names``.

    Images are transposed, as the files, torchvision and TensorFlow Datasets have them: ``image.T`` stands upright.
    """

    @contextlib.contextmanager
    def open_file(self, raw: Resources, split: str, part: str) -> Iterator[IO[bytes]]:
        name = f"gzip/{self.card.name}-{split}-{part}-idx{3 if part == 'images' else 1}-ubyte.gz"
        with raw["raw/gzip.zip"] as resource, open_archive(resource) as archive:
            with archive.open(name) as member, open_decompressed(member) as stream:
                yield stream


class EMNISTByClassFactory(EMNISTFactory, dataset="emnist", name="emnist-byclass"):
    """Handwritten digits and letters in 62 classes of different sizes: all of EMNIST, 28 × 28 pixels.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """


class EMNISTByMergeFactory(EMNISTFactory, dataset="emnist", name="emnist-bymerge"):
    """Handwritten digits and letters in 47 classes of different sizes, one for letters alike in both cases: all of EMNIST.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """


class EMNISTBalancedFactory(EMNISTFactory, dataset="emnist", name="emnist-balanced"):
    """Handwritten digits and letters in 47 classes of one size, one for letters alike in both cases: a part of EMNIST.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """


class EMNISTLettersFactory(EMNISTFactory, dataset="emnist", name="emnist-letters"):
    """Handwritten letters of EMNIST in 26 classes of one size, one for both cases; labels begin with 1, as in the files.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """


class EMNISTDigitsFactory(EMNISTFactory, dataset="emnist", name="emnist-digits"):
    """Handwritten digits of EMNIST in classes of one size, 28 × 28 pixels.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """


class EMNISTMNISTFactory(EMNISTFactory, dataset="emnist", name="emnist-mnist"):
    """Handwritten digits of EMNIST, as many as in MNIST, 28 × 28 pixels.

    Samples are ``(image, label, tag)``, see :class:`EMNISTFactory`; images are transposed: ``image.T`` stands upright.
    """
