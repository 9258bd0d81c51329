"""The lists of classes of several datasets, whose labels are numbers in these lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from data_stack.exception import ConfigError

Classes = Literal["same", "by name"]
"""How the labels of several iterators are joined.

``"same"``: the lists of classes must be the same. ``"by name"``: labels are renumbered, so that
classes of one name have one number.
"""

ClassesOfZip = Literal["same", "by name", "first"]
"""How the labels of iterators side by side are joined.

As :data:`Classes`; or ``"first"``: the classes of the first iterator are those of the stack.
"""


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
        iterators: the iterators to be joined.
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


def known_classes(iterator: Any) -> tuple[Any, ...]:
    """Return the classes that the labels of an iterator are numbers of, as far as it knows them.

    Returns:
        Those of its meta; or of its own attribute ``class_names``, as of a folder of images; empty
        if it has neither.
    """
    class_list = class_list_of(iterator)
    if class_list is None:
        class_list = getattr(iterator, "class_names", None)
    return tuple(class_list or ())


def check_class_numbers(lists: Mapping[str, Sequence[Any]]) -> None:
    """Check that a class has one number in all lists that name it.

    A list may have classes that others lack: a split may have no sample of the last class, and a
    dataset may have other names than its files.

    Args:
        lists: the classes in the order of their numbers, by where they are from.

    Raises:
        ConfigError: the message names a class with two numbers.
    """
    numbers: dict[Any, tuple[int, str]] = {}
    for place, class_list in lists.items():
        for number, name in enumerate(class_list):
            first_number, first_place = numbers.setdefault(name, (number, place))
            if number != first_number:
                raise ConfigError(
                    f"class {name!r:.80} has label {first_number} in {first_place}, but label "
                    f"{number} in {place}; give all splits one list, such as by "
                    f"ImageFolderIterator(…, class_names=self.class_names)"
                )


def common_class_list(lists: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the classes of all lists, each once, in the order in which they appear."""
    common_list: dict[Any, None] = {}
    for class_list in lists:
        common_list.update(dict.fromkeys(class_list))
    return tuple(common_list)


def _describe_difference(first: Sequence[Any], second: Sequence[Any]) -> str:
    """Return, for the first label with different classes in two lists, both classes."""
    for label in range(max(len(first), len(second))):
        first_class = _describe_class(label, first)
        second_class = _describe_class(label, second)
        if first_class != second_class:
            return f"label {label} is {first_class} in the first and {second_class} in the second"
    return f"{len(first)} and {len(second)} classes"


def _describe_class(label: int, class_list: Sequence[Any]) -> str:
    """Return the class of a label for a message."""
    if label >= len(class_list):
        return "no class"
    return repr(class_list[label])[:80]
