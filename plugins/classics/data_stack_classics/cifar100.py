"""CIFAR-100: small photographs of a hundred kinds of things."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.planes import PlanesFactory

_CITATION = """@techreport{cifar100,
  author = {Alex Krizhevsky},
  title = {Learning Multiple Layers of Features from Tiny Images},
  institution = {University of Toronto},
  year = {2009}
}"""


class CIFAR100Factory(PlanesFactory):
    """Photographs of things in a hundred classes, 32 × 32 pixels in color.

    Samples are ``(image, label, superclass)``: a uint8 array of shape ``(32, 32, 3)``; the label, a
    position in ``class_names``; and the number of one of 20 groups of classes. The groups are in
    the alphabetical order of their names, from ``aquatic_mammals`` to ``vehicles_2``.
    """

    card = DatasetCard(
        name="cifar100",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            size=168_513_733,
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 50_000, "test": 10_000}
    columns = ("image", "label", "superclass")
    folder = "cifar-100-binary"
    files = {"train": ("train.bin",), "test": ("test.bin",)}
    bytes_before = ("superclass", "label")
    class_names = (
        "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
        "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
        "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
        "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
        "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
        "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
        "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
        "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
        "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
        "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
        "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle",
        "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
    )  # fmt: skip
