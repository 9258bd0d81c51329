"""Fashion-MNIST: pictures of clothes in place of MNIST's digits."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.idx import IdxFactory

_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
_MIRROR = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"

_CITATION = """@misc{fashion-mnist,
  author = {Han Xiao and Kashif Rasul and Roland Vollgraf},
  title = {Fashion-{MNIST}: a Novel Image Dataset for Benchmarking Machine Learning Algorithms},
  year = {2017},
  eprint = {1708.07747},
  archiveprefix = {arXiv}
}"""


class FashionMNISTFactory(IdxFactory):
    """Pictures of clothes of ten kinds, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(28, 28)``; the label, a
    position in ``class_names``; and the label again.
    """

    card = DatasetCard(
        name="fashion-mnist",
        version="1.0.0",
        license="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/train-images",
            f"{_URL}/train-images-idx3-ubyte.gz",
            sha256="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            size=26_421_880,
            mirrors=(f"{_MIRROR}/train-images-idx3-ubyte.gz",),
        ),
        ResourceDefinition(
            "raw/train-labels",
            f"{_URL}/train-labels-idx1-ubyte.gz",
            sha256="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            size=29_515,
            mirrors=(f"{_MIRROR}/train-labels-idx1-ubyte.gz",),
        ),
        ResourceDefinition(
            "raw/test-images",
            f"{_URL}/t10k-images-idx3-ubyte.gz",
            sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            size=4_422_102,
            mirrors=(f"{_MIRROR}/t10k-images-idx3-ubyte.gz",),
        ),
        ResourceDefinition(
            "raw/test-labels",
            f"{_URL}/t10k-labels-idx1-ubyte.gz",
            sha256="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            size=5_148,
            mirrors=(f"{_MIRROR}/t10k-labels-idx1-ubyte.gz",),
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 60_000, "test": 10_000}
    class_names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
