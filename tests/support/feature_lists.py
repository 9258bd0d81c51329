"""The feature of a list, in each version of datasets."""

from __future__ import annotations

from typing import Any

import datasets


def list_feature(feature: Any, length: int = -1) -> Any:
    """Return the feature of a list: ``datasets.List`` since version 4 of datasets.

    Args:
        feature: the feature of the elements.
        length: the length of each list; -1: any.
    """
    if hasattr(datasets, "List"):
        return datasets.List(feature, length=length)
    if isinstance(feature, dict):
        # A Sequence of a dict is a dict of lists.
        return [feature]
    return datasets.Sequence(feature, length=length)
