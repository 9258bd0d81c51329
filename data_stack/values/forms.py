"""The form of samples: tuples, dicts or bare values, with which columns."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean


@dataclass(frozen=True)
class SampleForm:
    """What samples look like.

    Attributes:
        kind: ``"tuple"`` (of lists and named tuples, too), ``"dict"`` or ``"bare"``.
        keys: the columns in their order: positions of tuples, keys of dicts, none of bare values.
    """

    kind: Literal["tuple", "dict", "bare"]
    keys: tuple[Any, ...] = ()

    @classmethod
    def of(cls, sample: Any) -> SampleForm:
        """The form of a sample, or of a batch."""
        if isinstance(sample, Mapping):
            return cls("dict", tuple(sample))
        return cls.tuples(len(sample)) if isinstance(sample, (tuple, list)) else cls("bare")

    @classmethod
    def tuples(cls, n_columns: int) -> SampleForm:
        """The form of tuples with so many columns."""
        return cls("tuple", tuple(range(n_columns)))

    def normal(self, key: Any) -> Any:
        """A column as it is in ``keys``: a position that counts from the end, from 0 on; other keys are returned as they are."""
        if self.kind != "tuple" or not hasattr(key, "__index__"):
            return key
        position = operator.index(key)
        return position + len(self.keys) if -len(self.keys) <= position < 0 else position

    def find(self, key: Any) -> Any:
        """As :meth:`normal`.

        Raises:
            ConfigError: there is no such column.
        """
        column = self.normal(key)
        if column not in self.keys:
            raise ConfigError(f"samples have no column {key!r}: {self.describe(key)}")
        return column

    def find_all(self, keys: Sequence[Any]) -> tuple[Any, ...]:
        """As :meth:`find`, of several.

        Raises:
            ConfigError: there is no such column, or two keys are one column.
        """
        found: list[Any] = []
        for key in keys:
            column = self.find(key)
            if column in found:
                raise ConfigError(f"column {column!r} is named twice, by {keys[found.index(column)]!r} and by {key!r}")
            found.append(column)
        return tuple(found)

    def make(self, values: Sequence[Any]) -> Any:
        """A sample of such values, or a batch of such columns."""
        return dict(zip(self.keys, values, strict=True)) if self.kind == "dict" else tuple(values)

    def describe(self, wrong: Any = None) -> str:
        """The columns, for messages; ``wrong`` is a key that is none of them."""
        if self.kind == "bare":
            return "they are bare values"
        if self.kind == "dict" or not self.keys:
            names = ", ".join(map(repr, self.keys))
            return f"they have the columns {names}{did_you_mean(wrong, self.keys)}" if names else "they have no columns"
        return f"they have the columns 0 to {len(self.keys) - 1}"


def replace_values(sample: Any, values: Mapping[Any, Any]) -> Any:
    """A sample like another one, a list or named tuple too, with other values in some columns."""
    if isinstance(sample, Mapping):
        return {**sample, **values}
    changed = list(sample)
    for key, value in values.items():
        changed[key] = value
    if type(sample) is list:
        return changed
    return sample._make(changed) if hasattr(sample, "_make") else tuple(changed)
