"""IMDB reviews: whether somebody liked a film."""

from __future__ import annotations

from data_stack_classics.folders import TextFoldersFactory


class IMDBReviewsFactory(TextFoldersFactory, dataset="imdb-reviews"):
    """Reviews of films that praise or pan them, and others without label.

    Samples are ``{"text": str, "label": int}``: the review with its HTML (``<br />``), and the position in ``class_names``, which
    is -1 in the split ``unsupervised``.
    """
