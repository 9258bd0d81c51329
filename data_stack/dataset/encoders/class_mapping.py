"""Classes replaced by other classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categories import (
    Categories,
    Codes,
    category,
    column_of_values,
    is_number,
)
from data_stack.dataset.encoders.columns import ColumnArray, as_column, first_place
from data_stack.dataset.encoders.encoder import Encoder, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError

_NUMERIC_KINDS = "biuf"


@register_encoder
class ClassMapping(Encoder):
    """Replaces classes: ``ClassMapping({(0, 1, 2): "low", (3, 4): "high"}, unmapped="error")``.

    Every label is looked up once: with ``{1: 2, 2: 3}`` a 1 becomes 2, not 3. Labels are equal as
    in Python (1, 1.0, True and ``np.int64(1)`` are one label). The shape ``(n, …)`` stays.

    Args:
        mapping: new classes by old ones; a key that is a tuple holds several old classes.
        unmapped: what happens to other labels: ``"keep"`` leaves them as they are; ``"error"``
            refuses them when they are read; with ``"drop"``, ``iterator.map_classes`` leaves their
            samples out, and this encoder refuses them.

    Attributes:
        unmapped: what happens to labels that the mapping does not name.
        classes: the new classes, each once: sorted if they are numbers, otherwise in the order of
            the mapping.

    Raises:
        ConfigError: a label is in two entries, or has an unsupported type.
    """

    kind = "class_mapping"
    output_size = 1
    target_kind = "label"
    _keeps_shape = True

    unmapped: str
    classes: tuple[Any, ...]
    #: The mapping as it was given.
    _mapping: dict[Any, Any]
    #: The new class of each label.
    _new_by_old: dict[Any, Any]
    #: The labels, numbered.
    _labels: Categories
    #: The new class of each label, by the number of the label.
    _new_classes: ColumnArray

    def __init__(
        self, mapping: Mapping[Any, Any], *, unmapped: Literal["keep", "error", "drop"] = "keep"
    ) -> None:
        if not isinstance(mapping, Mapping):
            raise ConfigError(
                f"a class mapping must be a dict of new classes by old ones, got {mapping!r:.80}"
            )
        self.unmapped = check_choice("unmapped", unmapped, ("keep", "error", "drop"))
        self._mapping = dict(mapping)
        self._new_by_old = _resolve(self._mapping)
        self._labels = Categories(self._new_by_old, "label")
        self._new_classes = column_of_values(list(self._new_by_old.values()))
        self.classes = _distinct_classes(self._new_by_old)
        self._remember({})

    def config(self) -> dict[str, Any]:
        """Return ``mapping`` and ``unmapped``."""
        return {"mapping": self._mapping, "unmapped": self.unmapped}

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """:attr:`classes`; None if unmapped labels are kept."""
        return None if self.unmapped == "keep" else self.classes

    def is_mapped(self, labels: Any) -> npt.NDArray[np.bool_]:
        """Return which labels of a column the mapping names, shape ``(n, …)``."""
        return self._labels.codes(as_column(labels)) >= 0

    def _transform(self, column: ColumnArray) -> ColumnArray:
        codes = self._labels.codes(column)
        if self.unmapped == "keep":
            return self._replace_known(column, codes)
        is_unmapped = codes < 0
        if is_unmapped.any():
            place = first_place(is_unmapped)
            label = category(column[place])
            raise EncodingError(
                f"the label {label!r:.80} is not in the class mapping: {self._labels.describe()}",
                place[0],
            )
        return self._new_classes[codes]

    def _replace_known(self, column: ColumnArray, codes: Codes) -> ColumnArray:
        """Return a column in which labels that the mapping names are replaced."""
        replaced = column.astype(_dtype_for_both(column.dtype, self._new_classes.dtype))
        is_mapped = codes >= 0
        replaced[is_mapped] = self._new_classes.astype(replaced.dtype)[codes[is_mapped]]
        return replaced

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        """Return the old labels.

        Raises:
            ConfigError: several old labels became one new class.
        """
        old_by_new = {new: old for old, new in self._new_by_old.items()}
        if len(old_by_new) < len(self._new_by_old):
            raise ConfigError(
                "the class mapping has no inverse: several old labels all became one new class"
            )
        unmapped: Literal["keep", "error"] = "keep" if self.unmapped == "keep" else "error"
        return ClassMapping(old_by_new, unmapped=unmapped).transform(column)


def _resolve(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the new class of each label of a mapping, whose keys may hold several labels.

    Raises:
        ConfigError: a label is in two entries, or has an unsupported type.
    """
    new_by_old: dict[Any, Any] = {}
    for key, new in mapping.items():
        new_class = _check_label(new, f"the new class of {key!r:.80}")
        old_labels = key if isinstance(key, tuple) else (key,)
        if not old_labels:
            raise ConfigError(f"an entry of the class mapping names no label: (): {new!r:.80}")
        for old_label in old_labels:
            label = _check_label(old_label, "a label")
            if label in new_by_old:
                raise ConfigError(
                    f"the label {old_label!r:.80} is in two entries of the class mapping; "
                    "name it once"
                )
            new_by_old[label] = new_class
    return new_by_old


def _check_label(value: Any, description: str) -> Any:
    """Return a label as a category.

    Raises:
        ConfigError: the value has an unsupported type, or is a tuple.
    """
    error = ConfigError(
        f"{description} must be a number, a string, bytes or None, got {value!r:.80}"
    )
    if isinstance(value, tuple):
        raise error
    try:
        return category(value)
    except TypeError:
        raise error from None


def _distinct_classes(new_by_old: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return the new classes, each once: numbers sorted, others in the order of the mapping."""
    distinct_classes = list(dict.fromkeys(new_by_old.values()))
    if all(is_number(new_class) for new_class in distinct_classes):
        distinct_classes.sort()
    return tuple(distinct_classes)


def _dtype_for_both(label_dtype: np.dtype[Any], class_dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype for a column of labels and new classes that holds both exactly.

    The dtype does not depend on the values in the column. It is the common dtype of both if that is
    an integer, or if both are of one kind; otherwise it is object.
    """
    are_numbers = label_dtype.kind in _NUMERIC_KINDS and class_dtype.kind in _NUMERIC_KINDS
    if not are_numbers:
        return np.dtype(object)
    common_dtype = np.result_type(label_dtype, class_dtype)
    if common_dtype.kind in "iu" or label_dtype.kind == class_dtype.kind:
        return common_dtype
    return np.dtype(object)
