"""Converts values of Parquet to what their features say: images, arrays, numbers of classes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype
from data_stack.codecs.images import decode_image
from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.values.dtype_texts import parse_dtype
from data_stack.values.stacked_values import stack_values


class HubEncoder(Encoder):
    """Converts values by their feature.

    Images become arrays, lists become arrays of a shape, names of classes become numbers. Images
    are files, or dicts of ``bytes`` and ``path``; for their arrays see
    :mod:`data_stack.codecs.images`. None stays None.

    Args:
        mode: mode of Pillow to convert images to; None: no conversion.
        dtype: dtype of numbers or arrays; None: the values are images, or names of classes.
        shape: shape of arrays; empty: that of the value.
        names: names of classes.
    """

    kind = "huggingface"

    _mode: str | None
    _dtype: str | None
    _shape: tuple[int, ...]
    _names: tuple[str, ...]

    def __init__(
        self,
        mode: str | None = None,
        dtype: str | None = None,
        shape: Sequence[int] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._mode = mode
        self._dtype = dtype
        self._shape = tuple(shape)
        self._names = tuple(names)
        self._learned = {}  # nothing is learned, so the encoder is fitted

    def config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "mode": self._mode,
            "dtype": self._dtype,
            "shape": list(self._shape),
            "names": list(self._names),
        }

    def _transform(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        is_column_of_numbers = self._dtype is not None and column.dtype != object
        if is_column_of_numbers and not self._shape:
            # If a value cannot be converted, the loop below finds it.
            with contextlib.suppress(ValueError):
                return self._convert_dtype(column)

        values: list[Any] = []
        for position, value in enumerate(column):
            if value is None:
                values.append(None)
                continue
            try:
                values.append(self._convert(value))
            except (TypeError, ValueError) as error:
                expected = self._describe_expected()
                raise EncodingError(f"expected {expected}: {error!s:.200}", position) from error
        return stack_values(values)

    def _convert(self, value: Any) -> Any:
        """Convert one value, which is not None."""
        if self._names:
            return self._number_of_class(value)
        if self._dtype is None:
            file = value if isinstance(value, bytes) else value["bytes"]
            return decode_image(file, self._mode)

        array = np.asarray(value)
        if array.dtype == object:
            array = self._replace_none(array)
        converted = self._convert_dtype(array)
        if self._shape:
            return converted.reshape(self._shape)
        if converted.ndim == 0:
            return converted[()]  # a number, not an array without dimensions
        return converted

    def _number_of_class(self, name: Any) -> Any:
        """Return the position of a class among the names, an int64.

        Raises:
            ValueError: the class is unknown.
        """
        if name not in self._names:
            raise ValueError(f"{name!r:.80} is not one of {self._names!s:.200}")
        return np.int64(self._names.index(name))

    def _replace_none(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers in which NaN stands for None.

        Raises:
            TypeError: there is None among integers, or a value is no number.
        """
        has_nan = self._numpy_dtype().kind == "f"
        numbers = array.reshape(-1).tolist()
        if has_nan:
            numbers = [np.nan if value is None else value for value in numbers]
        stacked = stack_values(numbers)
        if stacked.dtype == object:
            raise TypeError(f"no numbers of {self._dtype}: {array!s:.80}")
        return stacked.reshape(array.shape)

    def _convert_dtype(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert numbers to the dtype.

        Floats may lose digits. Floats without a fraction may become integers.

        Raises:
            TypeError: the values are no numbers.
            ValueError: the dtype cannot hold a number.
        """
        return as_dtype(array, self._numpy_dtype(), rounds=True, whole_floats=True)

    def _numpy_dtype(self) -> np.dtype[Any]:
        """Return the dtype that a card or a file of the Hub names.

        Raises:
            ValueError: it is a unit of time with a divisor.
            TypeError: numpy does not know it.
        """
        if self._dtype is None:
            raise TypeError("the feature has no dtype")
        return parse_dtype(self._dtype)

    def _describe_expected(self) -> str:
        """Return what a value should be, for errors."""
        if self._dtype is not None:
            return f"a value of {self._dtype}"
        if self._names:
            return "a value of a class"
        return "an image with bytes"
