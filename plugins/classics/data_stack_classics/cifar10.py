"""CIFAR-10: small photographs of ten kinds of animals and vehicles."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.planes import PlanesFactory

_CITATION = """@techreport{cifar10,
  author = {Alex Krizhevsky},
  title = {Learning Multiple Layers of Features from Tiny Images},
  institution = {University of Toronto},
  year = {2009}
}"""


class CIFAR10Factory(PlanesFactory):
    """Photographs of animals and vehicles in ten classes, 32 × 32 pixels in color.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``; the label, a
    position in ``class_names``; and the label again.
    """

    card = DatasetCard(
        name="cifar10",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            size=170_052_171,
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 50_000, "test": 10_000}
    folder = "cifar-10-batches-bin"
    files = {
        "train": (
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
        ),
        "test": ("test_batch.bin",),
    }
    class_names = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
