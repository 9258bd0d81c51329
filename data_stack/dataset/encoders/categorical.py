"""Categories as numbers or as one-hot vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categories import (
    Categories,
    CategoriesLearner,
    Codes,
    category,
)
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.columns import ColumnArray, first_place
from data_stack.dataset.encoders.encoder import Encoder, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.learner import Learner
from data_stack.exception import ConfigError

#: Among the names of the numbers of a vector, that of the number for unknown values.
_NAME_OF_UNKNOWN = "?"


@register_encoder
class CategoricalEncoder(Encoder):
    """Encodes each value as the number of its category, or as a one-hot vector.

    Categories are numbers, bools, strings, bytes, None, or tuples of these. They are equal as in
    Python: 1, 1.0, True and ``np.int64(1)`` are one category, the string "1" is another. All NaN
    are one category. Learned categories are sorted, numbers first, then strings; given ones keep
    their order. Learning keeps the distinct values only.

    ====================  ==============================  =======
    ``output``            of values of shape ``(n, …)``   dtype
    ====================  ==============================  =======
    ``"one_hot"``         ``(n, …, output_size)``         float32
    ``"ordinal"``         ``(n, …)``                      int64
    ====================  ==============================  =======

    Args:
        output: see above.
        unknown: how unknown values are encoded: ``"error"``; ``"zeros"``, a vector without a one,
            for one-hot only; ``"index"``, one more position or number, the last.
        categories: the categories, if they are known; None to learn them.

    Raises:
        ConfigError: two categories are equal, or have an unsupported type, or ``unknown`` does not
            suit ``output``.
    """

    kind = "categorical"

    #: What messages call a category.
    _noun = "category"
    #: Whether the integers 0, 1, … are accepted for categories that are not numbers.
    _accepts_numbers = False

    _output: str
    _unknown: str
    #: Whether the categories were given, not learned.
    _is_given: bool
    _categories: Categories

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
                "unknown='zeros' is for one-hot output: "
                "as a number, 0 is the first category. Use 'index'"
            )
        self._keeps_shape = output == "ordinal"
        self.target_kind = "label" if output == "ordinal" else "one_hot"
        self._is_given = categories is not None
        known_categories: Iterable[Any] = () if categories is None else categories
        self._categories = Categories(
            known_categories, self._noun, accepts_numbers=self._accepts_numbers
        )
        if self._is_given:
            self._learned = {}

    def config(self) -> dict[str, Any]:
        """Return ``output``, ``unknown``, and ``categories`` if they were given."""
        categories = list(self.categories) if self._is_given else None
        return {"output": self._output, "unknown": self._unknown, "categories": categories}

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
        if self._output == "ordinal" or not self.is_fitted:
            return None
        names = [str(value) for value in self.categories]
        if self._unknown == "index":
            names.append(_NAME_OF_UNKNOWN)
        return tuple(names)

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The categories; with ``unknown="index"``, None as the last."""
        if not self.is_fitted:
            return None
        if self._unknown == "index":
            return (*self.categories, None)
        return self.categories

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return None if self._is_given else CategoriesLearner()

    def _remember(self, learned: Mapping[str, Any]) -> None:
        self._categories = Categories(learned["categories"], self._noun)
        self._learned = {"categories": learned["categories"]}

    # ------------------------------------------------------------------ encoding

    @property
    def _n_codes(self) -> int:
        """The number of categories, and one more if unknown values have a code."""
        if self._unknown == "index":
            return len(self._categories) + 1
        return len(self._categories)

    def _transform(self, column: ColumnArray) -> ColumnArray:
        if len(column) == 0:
            # The dtype of an empty column says nothing.
            column = column.astype(object)
        codes = self._categories.codes(column)
        is_unknown = codes < 0
        if self._unknown == "error" and is_unknown.any():
            place = first_place(is_unknown)
            value = category(column[place])
            raise EncodingError(
                f"{value!r:.80} is an unknown {self._noun}: {self._categories.describe()}", place[0]
            )
        if self._unknown == "index":
            codes = np.where(is_unknown, len(self._categories), codes)
        if self._output == "ordinal":
            return codes.astype(np.int64, copy=False)
        is_code = np.equal(codes[..., np.newaxis], np.arange(self._n_codes))
        return is_code.astype(np.float32)

    # ------------------------------------------------------------------ decoding

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        """Return the categories; None for vectors without a one, and for unknown values.

        A vector of scores means the category of its highest score.
        """
        if self._output == "one_hot":
            codes = self._codes_of_vectors(column)
        else:
            codes = self._codes_of_numbers(column)
        is_for_unknown = codes >= len(self._categories)
        return self._categories.values_of(np.where(is_for_unknown, -1, codes))

    def _codes_of_vectors(self, column: ColumnArray) -> Codes:
        if column.ndim < 2 or column.shape[-1] != self._n_codes:
            raise ConfigError(
                f"vectors must have {self._n_codes} numbers, got a column of shape {column.shape}"
            )
        if self._n_codes == 0:
            return np.full(column.shape[:-1], -1)
        has_one = column.any(axis=-1)
        return np.where(has_one, column.argmax(axis=-1), -1)

    def _codes_of_numbers(self, column: ColumnArray) -> Codes:
        if column.dtype.kind not in "iu" and column.size:
            raise ConfigError(
                f"numbers of categories must be integers, got a column of dtype {column.dtype}"
            )
        codes = column.astype(np.intp)
        is_outside = (codes < 0) | (codes >= self._n_codes)
        if is_outside.any():
            place = first_place(is_outside)
            raise EncodingError(
                f"{self._noun} number {codes[place]} does not exist: "
                f"numbers end at {self._n_codes - 1}",
                place[0],
            )
        return codes


@register_encoder
class OneHotEncoder(CategoricalEncoder):
    """Encodes labels of shape ``(n, …)`` as one-hot vectors, float32, shape ``(n, …, n_classes)``.

    Args:
        classes: in the order of the positions; of a ClassMapping, its classes. If none of them is a
            number, the integers 0, 1, … are accepted as their numbers.
        unknown: how unknown labels are encoded: ``"error"``, ``"zeros"`` or ``"index"``, see
            CategoricalEncoder.

    Raises:
        ConfigError: two classes are equal, or have an unsupported type.
    """

    kind = "one_hot"
    _noun = "class"
    _accepts_numbers = True

    def __init__(
        self,
        classes: Sequence[Any] | npt.NDArray[Any] | ClassMapping,
        unknown: Literal["error", "zeros", "index"] = "error",
    ) -> None:
        if isinstance(classes, ClassMapping):
            classes = classes.classes
        super().__init__("one_hot", unknown, classes)

    def config(self) -> dict[str, Any]:
        """Return ``classes`` and ``unknown``."""
        return {"classes": list(self.categories), "unknown": self._unknown}
