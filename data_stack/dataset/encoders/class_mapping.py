"""Replaces classes by other classes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categories import Categories, category, values_column
from data_stack.dataset.encoders.columns import Column, as_column, first_place
from data_stack.dataset.encoders.encoder import Encoder, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError


@register_encoder
class ClassMapping(Encoder):
    """Replaces classes: ``ClassMapping({(0, 1, 2): "low", (3, 4): "high"}, unmapped="error")``.

    Every label is looked up once: with ``{1: 2, 2: 3}`` a 1 becomes 2, not 3. Labels are equal as in Python (1, 1.0, True and
    ``np.int64(1)`` are one label). The shape ``(n, …)`` stays.

    Args:
        mapping: new classes by old ones; a key that is a tuple holds several old classes.
        unmapped: for other labels: ``"keep"`` leaves them as they are, ``"error"`` refuses them when they are read, ``"drop"``
            leaves their samples out (``iterator.map_classes`` does; reading one is an error).

    Raises:
        ConfigError: a label is in two entries, or has an unsupported type.
    """

    kind = "class_mapping"
    output_size = 1
    target_kind = "label"
    _keeps_shape = True

    def __init__(self, mapping: Mapping[Any, Any], *, unmapped: Literal["keep", "error", "drop"] = "keep") -> None:
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"a class mapping must be a dict of new classes by old ones, got {mapping!r:.80}")
        self._unmapped = check_choice("unmapped", unmapped, ("keep", "error", "drop"))
        self._given = dict(mapping)
        pairs: dict[Any, Any] = {}
        for old_labels, new in self._given.items():
            new_class = _label(new, f"the new class of {old_labels!r:.80}")
            if isinstance(old_labels, tuple) and not old_labels:
                raise ConfigError(f"an entry of the class mapping names no label: (): {new!r:.80}")
            for old in old_labels if isinstance(old_labels, tuple) else (old_labels,):
                label = _label(old, "a label")
                if label in pairs:
                    raise ConfigError(f"the label {old!r:.80} is in two entries of the class mapping; name it once")
                pairs[label] = new_class
        self._old = Categories(pairs, "label")
        new_classes = list(dict.fromkeys(pairs.values()))
        if all(isinstance(each, (bool, int, float)) for each in new_classes):
            new_classes.sort()
        self._classes = tuple(new_classes)
        self._new_by_old = pairs
        self._values = values_column(list(pairs.values()))
        self._remember({})

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``mapping`` and ``unmapped``."""
        return {"mapping": self._given, "unmapped": self._unmapped}

    @property
    def unmapped(self) -> str:
        """What happens to labels that the mapping does not name."""
        return str(self._unmapped)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The new classes, each once: sorted if they are numbers, otherwise in the order of the mapping."""
        return self._classes

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """:attr:`classes`; None if unmapped labels are kept."""
        return None if self._unmapped == "keep" else self._classes

    # ------------------------------------------------------------------ mapping

    def is_mapped(self, labels: Any) -> npt.NDArray[np.bool_]:
        """Which labels of a column the mapping names, shape ``(n, …)``."""
        return self._old.codes(as_column(labels)) >= 0

    def _transform(self, column: Column) -> Column:
        codes = self._old.codes(column)
        is_unmapped = codes < 0
        if self._unmapped == "keep":
            dtype = _common_dtype(column.dtype, self._values)
            kept = column.astype(dtype)
            kept[~is_unmapped] = self._values.astype(dtype)[codes[~is_unmapped]]
            return kept
        if is_unmapped.any():
            at = first_place(is_unmapped)
            label = category(column[at])
            raise EncodingError(f"the label {label!r:.80} is not in the class mapping: {self._old.shorten()}", at[0])
        return self._values[codes]

    def _inverse(self, column: Column) -> Column:
        """The old labels.

        Raises:
            ConfigError: several old labels became one new class.
        """
        old_by_new = {new: old for old, new in self._new_by_old.items()}
        if len(old_by_new) < len(self._new_by_old):
            raise ConfigError("the class mapping has no inverse: several old labels all became one new class")
        return ClassMapping(old_by_new, unmapped="keep" if self._unmapped == "keep" else "error").transform(column)


def _label(value: Any, what: str) -> Any:
    with contextlib.suppress(TypeError):
        if not isinstance(value, tuple):
            return category(value)
    raise ConfigError(f"{what} must be a number, a string, bytes or None, got {value!r:.80}")


def _common_dtype(dtype: np.dtype[Any], values: Column) -> np.dtype[Any]:
    """The dtype that holds labels of ``dtype`` and the new classes exactly, for any batch."""
    if dtype.kind not in "biuf" or values.dtype.kind not in "biuf":
        return np.dtype(object)
    common = np.result_type(dtype, values.dtype)
    return common if common.kind in "iu" or dtype.kind == values.dtype.kind else np.dtype(object)
