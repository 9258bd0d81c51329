"""20 newsgroups: postings of 1993, each from one of 20 groups of Usenet."""

from __future__ import annotations

from data_stack_classics.folders import TextFoldersFactory


class NewsgroupsFactory(TextFoldersFactory, dataset="20-newsgroups"):
    """Postings of 20 newsgroups, the later ones for testing.

    Samples are ``{"text": str, "label": int}``: the posting with its header lines, in which the group may be named, and the
    position in ``class_names``.
    """

    encoding = "latin-1"  # as scikit-learn reads them
