"""20 newsgroups: postings of 1993, each from one of 20 groups of Usenet."""

from __future__ import annotations

from data_stack import DatasetCard, ResourceDefinition
from data_stack_classics.folders import TextFoldersFactory

_CITATION = """@inproceedings{20-newsgroups,
  author = {Ken Lang},
  title = {{NewsWeeder}: Learning to Filter Netnews},
  booktitle = {International Conference on Machine Learning},
  pages = {331--339},
  year = {1995}
}"""


class NewsgroupsFactory(TextFoldersFactory):
    """Postings of 20 newsgroups, the later ones for testing.

    Samples are ``{"text": str, "label": int}``. The text is the posting with its header lines, in
    which the group may be named. The label is a position in ``class_names``.
    """

    card = DatasetCard(
        name="20-newsgroups",
        version="1.0.0",
        license="LicenseRef-unknown",
        homepage="http://qwone.com/~jason/20Newsgroups/",
        citation=_CITATION,
    )
    # The digests are those of scikit-learn 1.9.1.
    sources = (
        ResourceDefinition(
            "raw/archive.tar.gz",
            "https://ndownloader.figshare.com/files/5975967",
            sha256="8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
            mirrors=("http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",),
        ),
    )
    splits = ("train", "test")
    n_samples = {"train": 11_314, "test": 7_532}
    encoding = "latin-1"  # as scikit-learn reads them
    class_names = (
        "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles",
        "rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med",
        "sci.space", "soc.religion.christian", "talk.politics.guns", "talk.politics.mideast",
        "talk.politics.misc", "talk.religion.misc",
    )  # fmt: skip
    folders = {"train": "20news-bydate-train/{}", "test": "20news-bydate-test/{}"}
