"""KMNIST: handwritten Japanese characters in place of MNIST's digits."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.idx import IdxFactory

_URL = "http://codh.rois.ac.jp/kmnist/dataset/kmnist"

_CITATION = """@misc{kmnist,
  author = {Tarin Clanuwat and Mikel Bober-Irizar and Asanobu Kitamoto and Alex Lamb \
and Kazuaki Yamamoto and David Ha},
  title = {Deep Learning for Classical {J}apanese Literature},
  year = {2018},
  eprint = {1812.01718},
  archiveprefix = {arXiv}
}"""


class KMNISTFactory(IdxFactory):
    """Ten hiragana of classical Japanese literature in cursive writing, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(28, 28)``; the label, a
    position in ``class_names``; and the label again.
    """

    card = DatasetCard(
        name="kmnist",
        version="1.0.0",
        license="CC-BY-SA-4.0",
        homepage="http://codh.rois.ac.jp/kmnist/index.html.en",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/train-images",
            f"{_URL}/train-images-idx3-ubyte.gz",
            sha256="51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            size=18_165_135,
        ),
        ResourceDefinition(
            "raw/train-labels",
            f"{_URL}/train-labels-idx1-ubyte.gz",
            sha256="e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            size=29_497,
        ),
        ResourceDefinition(
            "raw/test-images",
            f"{_URL}/t10k-images-idx3-ubyte.gz",
            sha256="edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            size=3_041_136,
        ),
        ResourceDefinition(
            "raw/test-labels",
            f"{_URL}/t10k-labels-idx1-ubyte.gz",
            sha256="20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
            size=5_120,
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 60_000, "test": 10_000}
    class_names = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
