"""Finds which columns of a dataset are the sample and the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_stack import IteratorMeta


@dataclass(frozen=True, slots=True)
class Parts:
    """The columns of a dataset that are the sample and the target.

    Attributes:
        iterator_meta: which columns are the sample and the target.
        class_names: names of the classes of the target; None if it has none.
    """

    iterator_meta: IteratorMeta
    class_names: Sequence[str] | None


def parts_of(features: Mapping[str, Any], names: Sequence[str]) -> Parts:
    """Return which columns are the sample and the target.

    The only ClassLabel is the target. The sample is the only image, or the first column that is not
    a ClassLabel.

    Args:
        features: features by column; may be empty.
        names: names of the columns, in their order.
    """
    kinds = {name: _kind_of(features.get(name)) for name in names}
    labels = [name for name in names if kinds[name] == "ClassLabel"]
    images = [name for name in names if kinds[name] == "Image"]

    sample: int | str = 0
    if len(images) == 1:
        sample = images[0]
    else:
        for name in names:
            if name not in labels:
                sample = name
                break

    target: int | str = 1
    class_names = None
    if len(labels) == 1:
        target = labels[0]
        class_names = features[target].get("names")
    return Parts(IteratorMeta(sample, target), class_names)


def _kind_of(feature: Any) -> Any:
    """Return the kind of a feature, such as "ClassLabel".

    Returns:
        None without a feature; and for a struct or the short form of a list, ``[feature]``.
    """
    if not isinstance(feature, Mapping):
        return None
    return feature.get("_type")
