"""20 newsgroups: postings of 1993, each from one of 20 groups of Usenet."""

from __future__ import annotations

from data_stack_classics.folders import TextFoldersFactory


class NewsgroupsFactory(TextFoldersFactory, dataset="20-newsgroups"):
    """Postings of 20 newsgroups, the later ones for testing.

    Samples are ``{"text": str, "label": int}``: the posting with its header lines, in which the group may be named, and the
    position in ``class_names``.
    """

    n_samples = {"train": 11_314, "test": 7_532}
    folders = {"train": "20news-bydate-train/{}", "test": "20news-bydate-test/{}"}
    encoding = "latin-1"  # as scikit-learn reads them
    class_names = (
        *("alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
        *("comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey"),
        *("sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian"),
        *("talk.politics.guns", "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc"),
    )
