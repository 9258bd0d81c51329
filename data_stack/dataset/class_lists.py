"""Compares the lists of classes of several datasets, whose labels are numbers in these lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from data_stack.exception import ConfigError

Classes = Literal["same", "by name"]
"""What becomes of labels of several iterators: their lists of classes must be the same, or a class has one number by its name."""

ClassesOfZip = Literal["same", "by name", "first"]
"""The same for iterators side by side, of which the list of the first one may be that of the stack."""


def class_list_of(iterator: Any) -> tuple[Any, ...] | None:
    """The classes of an iterator's targets, in the order of their numbers; None if they are unknown."""
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
    known = [
        (number, names)
        for number, names in enumerate(map(class_list_of, iterators))
        if names is not None
    ]
    if not known:
        return
    first_number, first = known[0]
    for number, names in known[1:]:
        if names != first:
            raise ConfigError(
                f"iterators {first_number} and {number} have different classes: "
                f"{_difference(first, names)}; {method}(…, classes='by name') gives a class one number"
            )


def common_class_list(lists: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    """All classes, each once: those of the first list in its order, then the new ones of the next."""
    return tuple(dict.fromkeys(name for names in lists for name in names))


def _difference(first: Sequence[Any], second: Sequence[Any]) -> str:
    """What the first label means that means something else: ``label 1 is 'cat' in the first, 'dog' in the second``."""
    for label in range(max(len(first), len(second))):
        meanings = [
            repr(names[label])[:80] if label < len(names) else "no class"
            for names in (first, second)
        ]
        if meanings[0] != meanings[1]:
            return f"label {label} is {meanings[0]} in the first and {meanings[1]} in the second"
    return f"{len(first)} and {len(second)} classes"
