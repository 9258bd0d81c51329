"""The lists of classes of several datasets, whose labels are numbers in these lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from data_stack.exception import ConfigError

Classes = Literal["same", "by name"]
"""What becomes of the labels of several iterators.

``"same"``: the lists of classes must be the same. ``"by name"``: a class has one number by its
name.
"""

ClassesOfZip = Literal["same", "by name", "first"]
"""The same for iterators side by side. ``"first"``: the list of the first one is that of the
stack."""


def class_list_of(iterator: Any) -> tuple[Any, ...] | None:
    """Return the classes of an iterator's targets, in the order of their numbers.

    Returns:
        The classes; None if they are unknown.
    """
    meta = getattr(iterator, "dataset_meta", None)
    names = getattr(meta, "class_names", None)
    return None if names is None else tuple(names)


def check_class_lists(iterators: Sequence[Any], method: str) -> None:
    """Check that a label means the same class in all iterators whose classes are known.

    Args:
        iterators: to be joined.
        method: the method that joins them, for the message.

    Raises:
        ConfigError: two lists differ; the message names the first class whose numbers do.
    """
    first_list = None
    first_number = 0
    for number, iterator in enumerate(iterators):
        class_list = class_list_of(iterator)
        if class_list is None:
            continue
        if first_list is None:
            first_list = class_list
            first_number = number
        elif class_list != first_list:
            raise ConfigError(
                f"iterators {first_number} and {number} have different classes: "
                f"{_describe_difference(first_list, class_list)}; "
                f"{method}(…, classes='by name') gives a class one number"
            )


def common_class_list(lists: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    """Return all classes, each once: those of the first list in its order, then the new ones."""
    common: dict[Any, None] = {}
    for class_list in lists:
        common.update(dict.fromkeys(class_list))
    return tuple(common)


def _describe_difference(first: Sequence[Any], second: Sequence[Any]) -> str:
    """Return what the first label means that means something else in the other list."""
    for label in range(max(len(first), len(second))):
        meaning = _meaning_of(label, first)
        other_meaning = _meaning_of(label, second)
        if meaning != other_meaning:
            return f"label {label} is {meaning} in the first and {other_meaning} in the second"
    return f"{len(first)} and {len(second)} classes"


def _meaning_of(label: int, class_list: Sequence[Any]) -> str:
    if label >= len(class_list):
        return "no class"
    return repr(class_list[label])[:80]
