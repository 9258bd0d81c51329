"""Categories, labels, classes: as numbers, as one-hot vectors, as other classes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.encoder import (
    Column,
    Encoder,
    Learner,
    as_column,
    check_choice,
    first_place,
    register_encoder,
)
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.values.stacked_values import objects

Codes = npt.NDArray[np.intp]
"""Numbers of categories, -1 for other values."""

NAN = math.nan
"""The one NaN among categories: NaN is unequal to itself, but found again as the same object."""


def category(value: Any) -> Any:
    """``value`` as a hashable Python value; all NaN become one object.

    Raises:
        TypeError: the value is not a bool, number, string, bytes, None, or tuple of these.
    """
    if isinstance(value, np.generic) or (
        getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    ):
        value = float(value) if isinstance(value, np.longdouble) else value.item()
    kinds: tuple[Any, ...] = (bool, str, int, float, bytes)
    for kind in kinds:
        if isinstance(value, kind):
            return NAN if value != value else kind(value)
    if value is None or isinstance(value, tuple):
        return value if value is None else tuple(category(item) for item in value)
    raise TypeError(
        f"a {type(value).__name__} is not a category: use numbers, bools, strings, bytes, None, or tuples of them"
    )


class Categories:
    """Distinct values in order; the number of a value is its position.

    Args:
        values: the categories.
        what: names one of them in errors.
        numbered: accept the integers 0, 1, … as the categories, unless one of these is a number.

    Raises:
        ConfigError: two values are equal, or have an unsupported type.
    """

    def __init__(
        self, values: Iterable[Any], what: str = "category", *, numbered: bool = False
    ) -> None:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigError(f"the {what} list must be a list of values, got {values!r:.80}")
        codes: dict[Any, int] = {}
        for position, value in enumerate(values):
            try:
                plain = category(value)
            except TypeError as error:
                raise ConfigError(f"{what} number {position}: {error}") from None
            if plain in codes:
                raise ConfigError(
                    f"the {what} {value!r:.80} is there twice, at {codes[plain]} and at {position}"
                )
            codes[plain] = position
        self.values = tuple(codes)
        self._what, self._is_numbered = what, numbered
        if numbered and not any(map(_is_number, codes)):
            codes.update((code, code) for code in range(len(codes)))
        self._codes = codes

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt, because each process has its own NaN object.
        return functools.partial(Categories, numbered=self._is_numbered), (self.values, self._what)

    def __len__(self) -> int:
        return len(self.values)

    def codes(self, column: Column) -> Codes:
        """The number of each value, -1 for other values; shape as that of ``column``.

        Raises:
            EncodingError: a value has an unsupported type, such as a list.
        """
        if column.dtype.kind not in "OUSbiuf":
            raise _dtype_error(column)
        if (
            column.dtype.kind in "biu"
            and column.size
            and column.min() >= 0
            and column.max() < len(self._small)
        ):
            return self._small[column.astype(np.intp)]
        values = column.ravel().tolist()
        try:
            codes = np.fromiter(
                map(self._codes.get, values, itertools.repeat(-1)), dtype=np.intp, count=len(values)
            )
        except TypeError:  # not hashable: reported below
            codes = np.full(len(values), -1, dtype=np.intp)
        for position in np.flatnonzero(
            codes < 0
        ).tolist():  # numpy's scalars, NaN, or in fact unknown
            try:
                codes[position] = self._codes.get(category(values[position]), -1)
            except TypeError as error:
                raise EncodingError(
                    f"{values[position]!r:.80}: {error}", position // _values_in_row(column)
                ) from None
        return codes.reshape(column.shape)

    @functools.cached_property
    def _small(self) -> Codes:
        """The codes of the integers from 0 on, some more than there are categories."""
        return np.array(
            [self._codes.get(number, -1) for number in range(2 * len(self) + 8)], dtype=np.intp
        )

    def shorten(self) -> str:
        """The first of them, for messages."""
        more = f" and {len(self) - 8} more" if len(self) > 8 else ""
        return (
            f"known are {', '.join(f'{value!r:.40}' for value in self.values[:8]) or 'none'}{more}"
        )

    def values_of(self, codes: Codes) -> Column:
        """The categories of these numbers; None for -1."""
        return (
            objects([*self.values, None])
            if codes.size and codes.min() < 0
            else _values_column(self.values)
        )[codes]


class CategoriesLearner(Learner):
    """Collects the distinct values of a column."""

    def __init__(self) -> None:
        self._seen: dict[Any, None] = {}

    def add(self, block: Column, first: int) -> None:
        """Add the values of a block."""
        if block.dtype.kind not in "OUSbiuf":
            raise _dtype_error(block)
        values = (np.unique(block) if block.dtype.kind in "biuf" else block.ravel()).tolist()
        distinct = values
        with contextlib.suppress(TypeError):  # not hashable: reported below
            distinct = dict.fromkeys(values)
        for value in distinct:
            try:
                self._seen.setdefault(category(value))
            except TypeError as error:
                place = next(place for place, item in enumerate(values) if item is value)
                raise EncodingError(
                    f"{value!r:.80}: {error}", first + place // _values_in_row(block)
                ) from None

    def finish(self) -> dict[str, Any]:
        """``categories``: sorted, numbers first, then strings, then the rest."""
        return {"categories": sorted(self._seen, key=_order)}


def _values_column(values: Sequence[Any]) -> Column:
    """Values as an array: of numbers if all are of one type that numpy has; otherwise of objects."""
    types = set(map(type, values))
    if (
        types == {bool}
        or types == {float}
        or (types == {int} and all(value in range(-(2**63), 2**63) for value in values))
    ):
        return np.array(values)
    return objects(values)


def _dtype_error(column: Column) -> ConfigError:
    return ConfigError(
        f"values of dtype {column.dtype} cannot be categories; numbers, strings and bytes can"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _values_in_row(column: Column) -> int:
    """How many values a row of a column has, at least 1."""
    return max(1, math.prod(column.shape[1:]))


def _order(value: Any) -> tuple[int, Any]:
    if value is NAN or value is None:
        return (1 if value is NAN else 5), 0
    if isinstance(value, tuple):
        return 4, repr(value)
    return (0 if _is_number(value) else 2 if isinstance(value, str) else 3), value


@register_encoder
class ClassMapping(Encoder):
    """Replaces classes: ``ClassMapping({(0, 1, 2): "low", (3, 4): "high"}, unmapped="error")``.

    Every label is looked up once: with ``{1: 2, 2: 3}`` a 1 becomes 2, not 3. Labels are equal as in Python (1, 1.0, True and
    ``np.int64(1)`` are one label). The shape ``(n, …)`` stays.

    Args:
        mapping: new classes by old ones; a key that is a tuple holds several old classes.
        unmapped: for other labels: ``"keep"`` leaves them as they are, ``"error"`` refuses them when they are read, ``"drop"``
            leaves their samples out (``iterator.map_classes`` does; reading one is an error).

    Attributes:
        unmapped: what happens to labels that the mapping does not name.
        classes: the new classes, each once: sorted if they are numbers, otherwise in the order of the mapping.

    Raises:
        ConfigError: a label is in two entries, or has an unsupported type.
    """

    kind = "class_mapping"
    output_size = 1
    target_kind = "label"
    _keeps_shape = True

    def __init__(
        self, mapping: Mapping[Any, Any], *, unmapped: Literal["keep", "error", "drop"] = "keep"
    ) -> None:
        if not isinstance(mapping, Mapping):
            raise ConfigError(
                f"a class mapping must be a dict of new classes by old ones, got {mapping!r:.80}"
            )
        self.unmapped: str = check_choice("unmapped", unmapped, ("keep", "error", "drop"))
        self._given = dict(mapping)
        self._new_by_old = pairs = dict[Any, Any]()
        for old_labels, new in self._given.items():
            new_class = _label(new, f"the new class of {old_labels!r:.80}")
            if isinstance(old_labels, tuple) and not old_labels:
                raise ConfigError(f"an entry of the class mapping names no label: (): {new!r:.80}")
            for old in old_labels if isinstance(old_labels, tuple) else (old_labels,):
                label = _label(old, "a label")
                if label in pairs:
                    raise ConfigError(
                        f"the label {old!r:.80} is in two entries of the class mapping; name it once"
                    )
                pairs[label] = new_class
        self._old = Categories(pairs, "label")
        new_classes = list(dict.fromkeys(pairs.values()))
        self.classes = tuple(
            sorted(new_classes) if all(map(_is_number, new_classes)) else new_classes
        )
        self._values = _values_column(list(pairs.values()))
        self._remember({})

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``mapping`` and ``unmapped``."""
        return {"mapping": self._given, "unmapped": self.unmapped}

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """:attr:`classes`; None if unmapped labels are kept."""
        return None if self.unmapped == "keep" else self.classes

    # ------------------------------------------------------------------ mapping

    def is_mapped(self, labels: Any) -> npt.NDArray[np.bool_]:
        """Which labels of a column the mapping names, shape ``(n, …)``."""
        return self._old.codes(as_column(labels)) >= 0

    def _transform(self, column: Column) -> Column:
        codes = self._old.codes(column)
        is_unmapped = codes < 0
        if self.unmapped == "keep":
            are_numbers = column.dtype.kind in "biuf" and self._values.dtype.kind in "biuf"
            common = (
                np.result_type(column.dtype, self._values.dtype)
                if are_numbers
                else np.dtype(object)
            )
            is_exact = (
                common.kind in "iu" or column.dtype.kind == self._values.dtype.kind
            )  # for any batch
            kept = column.astype(common if is_exact else object)
            kept[~is_unmapped] = self._values.astype(kept.dtype)[codes[~is_unmapped]]
            return kept
        if is_unmapped.any():
            at = first_place(is_unmapped)
            label = category(column[at])
            raise EncodingError(
                f"the label {label!r:.80} is not in the class mapping: {self._old.shorten()}", at[0]
            )
        return self._values[codes]

    def _inverse(self, column: Column) -> Column:
        """The old labels.

        Raises:
            ConfigError: several old labels became one new class.
        """
        old_by_new = {new: old for old, new in self._new_by_old.items()}
        if len(old_by_new) < len(self._new_by_old):
            raise ConfigError(
                "the class mapping has no inverse: several old labels all became one new class"
            )
        return ClassMapping(
            old_by_new, unmapped="keep" if self.unmapped == "keep" else "error"
        ).transform(column)


def _label(value: Any, what: str) -> Any:
    with contextlib.suppress(TypeError):
        if not isinstance(value, tuple):
            return category(value)
    raise ConfigError(f"{what} must be a number, a string, bytes or None, got {value!r:.80}")


@register_encoder
class CategoricalEncoder(Encoder):
    """Encodes each value as the number of its category, or as a one-hot vector.

    Categories are numbers, bools, strings, bytes, None, or tuples of these. They are equal as in Python: 1, 1.0, True and
    ``np.int64(1)`` are one category, the string "1" is another. All NaN are one category. Learned categories are sorted,
    numbers first, then strings; given ones keep their order. Learning keeps the distinct values only.

    ====================  ==============================  ===========================================
    ``output``            of values of shape ``(n, …)``   dtype
    ====================  ==============================  ===========================================
    ``"one_hot"``         ``(n, …, output_size)``         float32
    ``"ordinal"``         ``(n, …)``                      int64
    ====================  ==============================  ===========================================

    Args:
        output: see above.
        unknown: how unknown values are encoded: ``"error"``; ``"zeros"``, a vector without a one, for one-hot only;
            ``"index"``, one more position or number, the last.
        categories: the categories, if they are known; None to learn them.

    Raises:
        ConfigError: two categories are equal, or have an unsupported type, or ``unknown`` does not suit ``output``.
    """

    kind = "categorical"

    _what = "category"
    _numbered = False

    def __init__(
        self,
        output: Literal["one_hot", "ordinal"] = "one_hot",
        unknown: Literal["error", "zeros", "index"] = "error",
        categories: Sequence[Any] | npt.NDArray[Any] | None = None,
    ) -> None:
        self._output = check_choice("output", output, ("one_hot", "ordinal"))
        self._unknown = check_choice("unknown", unknown, ("error", "zeros", "index"))
        if output == "ordinal" and unknown == "zeros":
            raise ConfigError(
                "unknown='zeros' is for one-hot output: as a number, 0 is the first category. Use 'index'"
            )
        self._keeps_shape = output == "ordinal"
        self.target_kind = "label" if output == "ordinal" else "one_hot"
        self._is_given = categories is not None
        self._categories = Categories(
            () if categories is None else categories, self._what, numbered=self._numbered
        )
        self._learned = {} if self._is_given else None

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``output``, ``unknown``, and ``categories`` if they were given."""
        return {
            "output": self._output,
            "unknown": self._unknown,
            "categories": list(self.categories) if self._is_given else None,
        }

    @property
    def categories(self) -> tuple[Any, ...]:
        """The categories in the order of their numbers; empty before fitting."""
        return self._categories.values

    @property
    def output_size(self) -> int | None:
        """Length of the vectors; 1 for numbers."""
        return 1 if self._output == "ordinal" else self._n_codes if self.is_fitted else None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The categories as text, and ``"?"`` for unknown values; None for numbers."""
        if self._output == "ordinal" or self.class_names is None:
            return None
        return tuple(
            "?" if position == len(self._categories) else str(each)
            for position, each in enumerate(self.class_names)
        )

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The categories; with ``unknown="index"``, None as the last."""
        return (
            (*self._categories.values, *[None] * (self._unknown == "index"))
            if self.is_fitted
            else None
        )

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return None if self._is_given else CategoriesLearner()

    def _remember(self, learned: Mapping[str, Any]) -> None:
        self._categories = Categories(learned["categories"], self._what)
        self._learned = {"categories": learned["categories"]}

    # ------------------------------------------------------------------ encoding

    _n_codes = property(lambda self: len(self._categories) + int(self._unknown == "index"))

    def _transform(self, column: Column) -> Column:
        if len(column) == 0 and column.dtype.kind not in "OUSbiuf":
            column = column.astype(object)
        codes = self._categories.codes(column)
        if self._unknown == "error" and codes.size and codes.min() < 0:
            at = first_place(codes < 0)
            raise EncodingError(
                f"{category(column[at])!r:.80} is an unknown {self._what}: {self._categories.shorten()}",
                at[0],
            )
        if self._unknown == "index":
            codes = np.where(codes < 0, len(self._categories), codes)
        if self._output == "ordinal":
            return codes.astype(np.int64, copy=False)
        return np.equal(codes[..., np.newaxis], np.arange(self._n_codes)).astype(np.float32)

    def _inverse(self, column: Column) -> Column:
        """The categories; None for vectors without a one and for the unknown. Of scores, the highest counts."""
        if self._output == "one_hot":
            if column.ndim < 2 or column.shape[-1] != self._n_codes:
                raise ConfigError(
                    f"vectors must have {self._n_codes} numbers, got a column of shape {column.shape}"
                )
            codes = np.where(
                column.any(axis=-1), column.argmax(axis=-1) if self._n_codes else -1, -1
            )
        else:
            if column.dtype.kind not in "iu" and column.size:
                raise ConfigError(
                    f"numbers of categories must be integers, got a column of dtype {column.dtype}"
                )
            codes = column.astype(np.intp)
            outside = (codes < 0) | (codes >= self._n_codes)
            if outside.any():
                at = first_place(outside)
                raise EncodingError(
                    f"{self._what} number {codes[at]} does not exist: numbers end at {self._n_codes - 1}",
                    at[0],
                )
        return self._categories.values_of(np.where(codes >= len(self._categories), -1, codes))


@register_encoder
class OneHotEncoder(CategoricalEncoder):
    """Encodes labels of shape ``(n, …)`` as one-hot vectors, float32, shape ``(n, …, n_classes)``.

    Args:
        classes: in the order of the positions; of a ClassMapping, its classes. If none of them is a number, the integers
            0, 1, … are accepted as their numbers.
        unknown: how unknown labels are encoded: ``"error"``, ``"zeros"`` or ``"index"``, see CategoricalEncoder.

    Raises:
        ConfigError: two classes are equal, or have an unsupported type.
    """

    kind = "one_hot"
    _what = "class"
    _numbered = True

    def __init__(
        self,
        classes: Sequence[Any] | npt.NDArray[Any] | ClassMapping,
        unknown: Literal["error", "zeros", "index"] = "error",
    ) -> None:
        super().__init__(
            "one_hot", unknown, classes.classes if isinstance(classes, ClassMapping) else classes
        )

    def config(self) -> dict[str, Any]:
        """``classes`` and ``unknown``."""
        return {"classes": list(self.categories), "unknown": self._unknown}
