"""Categories and labels as one-hot vectors or as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categories import Categories, CategoriesLearner, Codes, category
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.columns import Column, first_place
from data_stack.dataset.encoders.encoder import Encoder, Learner, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError


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
            raise ConfigError("unknown='zeros' is for one-hot output: as a number, 0 is the first category. Use 'index'")
        self._keeps_shape = output == "ordinal"
        self.target_kind = "label" if output == "ordinal" else "one_hot"
        self._categories = Categories(())
        self._is_given = categories is not None
        if categories is not None:
            self._set_categories(categories)
            self._learned = {}

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``output``, ``unknown``, and ``categories`` if they were given."""
        given = list(self._categories.values) if self._is_given else None
        return {"output": self._output, "unknown": self._unknown, "categories": given}

    @property
    def categories(self) -> tuple[Any, ...]:
        """The categories in the order of their numbers; empty before fitting."""
        return self._categories.values

    @property
    def output_size(self) -> int | None:
        """Length of the vectors; 1 for numbers."""
        if self._output == "ordinal":
            return 1
        return self._n_codes if self.is_fitted else None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The categories as text, and ``"?"`` for unknown values; None for numbers."""
        if self._output == "ordinal" or self.class_names is None:
            return None
        return tuple("?" if position == len(self._categories) else str(each) for position, each in enumerate(self.class_names))

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The categories; with ``unknown="index"``, None as the last."""
        if not self.is_fitted:
            return None
        return (*self._categories.values, *[None] * (self._unknown == "index"))

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return None if self._is_given else CategoriesLearner()

    def _remember(self, learned: Mapping[str, Any]) -> None:
        self._set_categories(learned["categories"])
        self._learned = {"categories": learned["categories"]}

    def _set_categories(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise ConfigError(f"the {self._what} list must be a list of values, got {values!r:.80}")
        self._categories = Categories(values, self._what, numbered=self._numbered)

    # ------------------------------------------------------------------ encoding

    @property
    def _n_codes(self) -> int:
        return len(self._categories) + int(self._unknown == "index")

    def _codes(self, column: Column) -> Codes:
        """The number of each value; -1 for unknown values that become zeros."""
        codes = self._categories.codes(column)
        if codes.size and codes.min() < 0:
            if self._unknown == "index":
                return np.where(codes < 0, len(self._categories), codes)
            if self._unknown == "error":
                at = first_place(codes < 0)
                value, known = category(column[at]), self._categories.shorten()
                raise EncodingError(f"{value!r:.80} is an unknown {self._what}: {known}", at[0])
        return codes

    def _transform(self, column: Column) -> Column:
        if len(column) == 0 and column.dtype.kind not in "OUSbiuf":
            column = column.astype(object)
        codes = self._codes(column)
        if self._output == "ordinal":
            return codes.astype(np.int64, copy=False)
        return np.equal(codes[..., np.newaxis], np.arange(self._n_codes)).astype(np.float32)

    def _inverse(self, column: Column) -> Column:
        """The categories; None for vectors without a one and for the unknown. Of scores, the highest counts."""
        if self._output == "one_hot":
            if column.ndim < 2 or column.shape[-1] != self._n_codes:
                raise ConfigError(f"vectors must have {self._n_codes} numbers, got a column of shape {column.shape}")
            codes = np.where(column.any(axis=-1), column.argmax(axis=-1) if self._n_codes else -1, -1)
        else:
            if column.dtype.kind not in "iu" and column.size:
                raise ConfigError(f"numbers of categories must be integers, got a column of dtype {column.dtype}")
            codes = column.astype(np.intp)
            outside = (codes < 0) | (codes >= self._n_codes)
            if outside.any():
                at = first_place(outside)
                raise EncodingError(f"{self._what} number {codes[at]} does not exist: numbers end at {self._n_codes - 1}", at[0])
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
        self, classes: Sequence[Any] | npt.NDArray[Any] | ClassMapping, unknown: Literal["error", "zeros", "index"] = "error"
    ) -> None:
        super().__init__("one_hot", unknown, classes.classes if isinstance(classes, ClassMapping) else classes)

    def config(self) -> dict[str, Any]:
        """``classes`` and ``unknown``."""
        return {"classes": list(self.categories), "unknown": self._unknown}
