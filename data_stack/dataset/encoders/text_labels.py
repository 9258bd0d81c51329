"""Strings as numbers and back: labels that are words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.categories import CategoriesLearner
from data_stack.dataset.encoders.columns import Column, objects
from data_stack.dataset.encoders.encoder import Learner
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError

__all__ = ["TextLabelEncoder"]


class TextLabelEncoder(CategoricalEncoder):
    """Each string as the number of its class: shape ``(n, …)`` to the same shape, int64.

    Bytes count as the string that they are in UTF-8. Learned classes are sorted, given ones keep their order. Their names are
    in :attr:`class_names`, and ``inverse`` gives the strings again.

    Args:
        class_names: where they are known; there is nothing to learn then.
        unknown: ``"error"``, or ``"index"``: one number more, the last, whose class is None.

    Raises:
        ConfigError: names are equal, or no strings.
    """

    kind = "text_labels"
    _what = "class"

    def __init__(self, class_names: Sequence[str] | None = None, unknown: Literal["error", "index"] = "error") -> None:
        super().__init__("ordinal", unknown, class_names)

    def config(self) -> dict[str, Any]:
        """``unknown``, and ``class_names`` if they were given."""
        return {"class_names": list(self.categories) if self._is_given else None, "unknown": self._unknown}

    def _learner(self) -> Learner | None:
        return None if self._is_given else _TextLearner()

    def _set_categories(self, values: Any) -> None:
        super()._set_categories(values)
        for position, value in enumerate(self.categories):
            if not isinstance(value, str):
                raise ConfigError(f"class number {position}, {value!r:.80}, is no string; CategoricalEncoder takes other values")

    def _transform(self, column: Column) -> Column:
        return super()._transform(_as_text(column, 0))


class _TextLearner(CategoriesLearner):
    def add(self, block: Column, first: int) -> None:
        super().add(_as_text(block, first), first)


def _as_text(column: Column, first: int) -> Column:
    """Strings and bytes as strings.

    Raises:
        EncodingError: a value is neither.
    """
    if column.dtype.kind == "U" or column.size == 0:
        return column
    values = column.ravel().tolist()
    for place, value in enumerate(values):
        try:
            values[place] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            values[place] = None
        if not isinstance(values[place], str):
            position = first + place // max(1, int(np.prod(column.shape[1:])))
            raise EncodingError(f"{value!r:.80} is no string, nor one in UTF-8; CategoricalEncoder takes other values", position)
    return objects(values).reshape(column.shape)
