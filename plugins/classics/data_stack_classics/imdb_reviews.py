"""IMDB reviews: whether somebody liked a film."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.folders import TextFoldersFactory

_CITATION = """@inproceedings{imdb-reviews,
  author = {Andrew L. Maas and Raymond E. Daly and Peter T. Pham and Dan Huang \
and Andrew Y. Ng and Christopher Potts},
  title = {Learning Word Vectors for Sentiment Analysis},
  booktitle = {Annual Meeting of the Association for Computational Linguistics},
  pages = {142--150},
  year = {2011},
  url = {https://aclanthology.org/P11-1015}
}"""


class IMDBReviewsFactory(TextFoldersFactory):
    """Reviews of films that praise or pan them, and others without label.

    Samples are ``{"text": str, "label": int}``. The text is the review with its HTML (``<br />``).
    The label is a position in ``class_names``, and -1 in the split ``unsupervised``.
    """

    card = DatasetCard(
        name="imdb-reviews",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
        citation=_CITATION,
    )
    # The digests are those of tensorflow-datasets 4.9.9.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            size=84_125_825,
        ),
    )
    splits = ("train", "test", "unsupervised")
    n_samples = {"train": 25_000, "test": 25_000, "unsupervised": 50_000}
    class_names = ("neg", "pos")
    folders = {
        "train": "aclImdb/train/{}",
        "test": "aclImdb/test/{}",
        "unsupervised": "aclImdb/train/unsup",
    }
