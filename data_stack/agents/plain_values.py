"""Converts values of a dataset to JSON of limited size."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.agents.limits import Limits
from data_stack.codecs.plain_data import shorten
from data_stack.show.display_value import thin_out_values
from data_stack.show.markup import printable
from data_stack.values.missing import is_null
from data_stack.values.stacked_values import exact_array

#: Stands for what is left out because the answer has reached its limit.
LEFT_OUT: Final = "… left out: the answer is full"

#: Bytes of an answer for the marks of what is left out.
_RESERVED_BYTES: Final = 4_000

#: About the bytes of the quotes, commas and spaces around a value.
_BYTES_AROUND_VALUE: Final = 4

#: Larger integers are text: many readers of JSON take numbers for float64.
_MAX_INTEGER: Final = 1 << 53

#: Of longer arrays, the statistics are those of values spread along every axis.
_MAX_VALUES_OF_STATISTICS: Final = 1 << 20

#: Longer bytes are not hashed.
_MAX_HASHED_BYTES: Final = 64 << 20

#: Values whose ``str`` is their text.
_PRINTED_TYPES: Final = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    np.datetime64,
    np.timedelta64,
)


class PlainValues:
    """Converts the values of one answer to JSON's types.

    All values of an answer share its limit of bytes: what comes first is shown, and a mark stands
    for what is left out. Control characters, escape sequences and characters that change the
    direction of text are escaped.

    Args:
        limits: the limits of the answer.
    """

    #: The limits of the answer.
    _limits: Limits

    #: The bytes that the answer may still have.
    _bytes_left: int

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes_left = limits.max_answer_bytes - _RESERVED_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the answer has reached its limit."""
        return self._bytes_left <= 0

    def convert(self, value: Any, depth: int = 0) -> Any:
        """Convert a value of any type. Never raises.

        Args:
            value: a value of any type. Text stays, or becomes its beginning with its length; bytes
                become their length and digest; an array becomes its dtype, shape, some values and
                statistics; NaN and infinities become text.
            depth: in how many lists and mappings of the answer the value is.
        """
        if self.is_full:
            return LEFT_OUT
        try:
            return self._convert(value, depth)
        except Exception:  # noqa: BLE001  # foreign values may raise anything
            return self._spend(f"a {type(value).__name__} that cannot be shown")

    def text(self, text: str, max_characters: int | None = None) -> str:
        """Return the beginning of a text without control characters, and take its bytes."""
        return str(self._spend(self._clean(text, max_characters or self._max_characters)))

    # ------------------------------------------------------------------ by type

    def _convert(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool):
            return self._spend(value)
        if isinstance(value, str):
            return self._convert_text(str.__str__(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._convert_bytes(value)
        if isinstance(value, (int, np.integer)):
            return self._convert_integer(int(value))
        if isinstance(value, (float, np.floating)):
            return self._convert_float(float(value))
        if is_null(value):
            return self._spend(None)
        if isinstance(value, np.bool_):
            return self._spend(bool(value))
        if isinstance(value, _PRINTED_TYPES):
            return self.text(str(value))
        if is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Mapping):
            return self._convert_mapping(value, depth)
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=repr)
        if isinstance(value, (list, tuple)):
            return self._convert_list(value, depth)
        array = exact_array(value)
        if array is None and isinstance(value, np.ndarray):
            array = value
        if array is not None:
            return self._convert_array(array, depth)
        return self.text(f"{type(value).__name__}: {shorten(value)}")

    def _convert_text(self, text: str) -> Any:
        n_shown = self._max_characters
        if len(text) <= n_shown:
            return self._spend(self._clean(text, n_shown))
        shown = self._clean(text, n_shown)
        return self._spend({"text": shown, "n_characters": len(text), "is_cut": True})

    def _convert_bytes(self, data: bytes | bytearray | memoryview) -> Any:
        n_bytes = memoryview(data).nbytes
        facts: dict[str, Any] = {"n_bytes": n_bytes}
        if n_bytes <= _MAX_HASHED_BYTES:
            facts["sha256"] = hashlib.sha256(data).hexdigest()
        return self._spend(facts)

    def _convert_integer(self, number: int) -> Any:
        if abs(number) <= _MAX_INTEGER:
            return self._spend(number)
        return self.text(shorten(number))

    def _convert_float(self, number: float) -> Any:
        if math.isfinite(number):
            return self._spend(number)
        if math.isnan(number):
            return self._spend("NaN")
        return self._spend("Infinity" if number > 0 else "-Infinity")

    def _convert_mapping(self, mapping: Mapping[Any, Any], depth: int) -> Any:
        if depth >= self._limits.max_depth:
            return self._spend(f"a mapping of {len(mapping):,} entries, nested too deep")
        converted: dict[str, Any] = {}
        n_left_out = len(mapping)
        for key, item in mapping.items():
            if self.is_full or len(converted) >= self._limits.max_items:
                break
            name = self.text(_name_of_key(key), max_characters=200)
            while name in converted:
                name += "'"
            converted[name] = self.convert(item, depth + 1)
            n_left_out -= 1
        if n_left_out > 0:
            converted["…"] = f"{n_left_out:,} more entries are left out"
        return converted

    def _convert_list(self, values: Sequence[Any], depth: int) -> Any:
        if depth >= self._limits.max_depth:
            return self._spend(f"a list of {len(values):,} values, nested too deep")
        converted: list[Any] = []
        for item in values:
            if self.is_full or len(converted) >= self._limits.max_items:
                break
            converted.append(self.convert(item, depth + 1))
        n_left_out = len(values) - len(converted)
        if n_left_out > 0:
            converted.append(f"… {n_left_out:,} more values are left out")
        return converted

    def _convert_array(self, array: npt.NDArray[Any], depth: int) -> Any:
        if array.ndim == 0:
            item = array.item()
            # The item of an array of objects may be an array again.
            return self.convert(item, depth + 1) if depth < self._limits.max_depth else LEFT_OUT
        facts: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        facts.update(_statistics_of(array))
        n_values = self._limits.max_values
        if array.size <= n_values:
            facts["values"] = array.tolist()
        else:
            facts["first_values"] = array.reshape(-1)[:n_values].tolist()
        return self._convert_mapping(facts, depth)

    # ------------------------------------------------------------------ bytes of the answer

    @property
    def _max_characters(self) -> int:
        """The maximum number of characters of a text now."""
        return max(0, min(self._limits.max_text_characters, self._bytes_left))

    def _clean(self, text: str, max_characters: int) -> str:
        return printable(text[:max_characters], keep="\n\t")

    def _spend(self, plain: Any) -> Any:
        """Return a plain value, and take its bytes from those that are left."""
        n_bytes = len(json.dumps(plain, ensure_ascii=False).encode()) + _BYTES_AROUND_VALUE
        if n_bytes > self._bytes_left:
            self._bytes_left = 0
            return LEFT_OUT
        self._bytes_left -= n_bytes
        return plain


def _name_of_key(key: Any) -> str:
    """Return the key of a mapping as text."""
    if isinstance(key, str):
        return str.__str__(key)
    return shorten(key)


def _statistics_of(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return extremes and mean of an array of numbers; empty for other arrays."""
    if array.dtype.kind not in "biuf" or array.size == 0:
        return {}
    values = thin_out_values(array, _MAX_VALUES_OF_STATISTICS)
    finite_values = values
    facts: dict[str, Any] = {}
    if array.dtype.kind == "f":
        finite_values = values[np.isfinite(values)]
        n_not_finite = values.size - finite_values.size
        if n_not_finite > 0:
            facts["n_not_finite"] = n_not_finite
    if values.size < array.size:
        facts["n_values_of_statistics"] = values.size
    if finite_values.size > 0:
        facts["min"] = finite_values.min()
        facts["max"] = finite_values.max()
        facts["mean"] = float(finite_values.mean(dtype=np.float64))
    return facts
