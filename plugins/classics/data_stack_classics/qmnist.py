"""QMNIST: the digits of MNIST and those that MNIST left out, with all that NIST knows of them."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.idx import IdxFactory

_URL = "https://raw.githubusercontent.com/facebookresearch/qmnist/master"

_CITATION = r"""@inproceedings{qmnist,
  author = {Chhavi Yadav and L{\'e}on Bottou},
  title = {Cold Case: The Lost {MNIST} Digits},
  booktitle = {Advances in Neural Information Processing Systems 32},
  year = {2019}
}"""


class QMNISTFactory(IdxFactory):
    """Handwritten digits: MNIST reconstructed, with 50,000 more for testing; and all of NIST's.

    Samples are ``(image, label, origin)``: a uint8 array of shape ``(28, 28)``, the digit, and an
    int64 array of shape ``(8,)``. The origin is, in this order:

    - the digit
    - the series of NIST
    - the number of the writer
    - the number of the digit among those of the writer
    - the class at NIST
    - the number of the digit among all
    - whether the digit is there twice
    - 0

    The first 10,000 of ``test`` are those of MNIST. ``nist`` has the samples of ``train`` and
    ``test`` again, and others.
    """

    card = DatasetCard(
        name="qmnist",
        version="1.0.0",
        license="BSD-3-Clause",
        homepage="https://github.com/facebookresearch/qmnist",
        citation=_CITATION,
    )
    # The digests are those of torchvision, prototype.datasets.
    sources = (
        ResourceDefinition(
            "raw/train-images",
            f"{_URL}/qmnist-train-images-idx3-ubyte.gz",
            sha256="9e26a7bf1683614e065d7b76460ccd52807165b3f22561fb782bd9f38c52b51d",
        ),
        ResourceDefinition(
            "raw/train-labels",
            f"{_URL}/qmnist-train-labels-idx2-int.gz",
            sha256="2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
        ),
        ResourceDefinition(
            "raw/test-images",
            f"{_URL}/qmnist-test-images-idx3-ubyte.gz",
            sha256="43fc22bf7498b8fc98de98369d72f752d0deabc280a43a7bcc364ab19e57b375",
        ),
        ResourceDefinition(
            "raw/test-labels",
            f"{_URL}/qmnist-test-labels-idx2-int.gz",
            sha256="9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",
        ),
        ResourceDefinition(
            "raw/nist-images",
            f"{_URL}/xnist-images-idx3-ubyte.xz",
            sha256="f075553993026d4359ded42208eff77a1941d3963c1eff49d6015814f15f0984",
        ),
        ResourceDefinition(
            "raw/nist-labels",
            f"{_URL}/xnist-labels-idx2-int.xz",
            sha256="db042968723ec2b7aed5f1beac25d2b6e983b9286d4f4bf725f1086e5ae55c4f",
        ),
    )
    splits = ("train", "test", "nist")
    n_samples = {"train": 60_000, "test": 60_000, "nist": 402_953}
    columns = ("image", "label", "origin")
    class_names = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
