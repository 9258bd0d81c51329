"""Python and numpy values, exactly: as JSON, with the types that JSON lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_stack.codecs.codec import Codec
from data_stack.codecs.plain_data import canonical_json, from_plain, to_plain
from data_stack.codecs.registry import register_codec
from data_stack.exception import ConfigError

_EXACT = (type(None), bool, int, float, complex, str, bytes, range, slice)


@register_codec
@dataclass(frozen=True, repr=False)
class PythonCodec(Codec):
    """Python's plain values: None, booleans, integers of any size, floats (NaN and infinities too), complex numbers, text, bytes,
    ranges, slices, numpy scalars and arrays, and lists, tuples, dicts and frozensets of them. Never pickle.

    A value comes back equal and of the same type. It is stored as JSON (:mod:`data_stack.codecs.plain_data`).
    """

    name = "python"

    def encode(self, value: Any) -> bytes:
        try:
            self._check(value)
            return canonical_json(to_plain(value, self._describe)).encode("ascii")
        except (ValueError, RecursionError) as error:  # ConfigError is one; so is an int of more digits than Python writes
            raise ConfigError(str(error)) from error

    def decode(self, record: bytes) -> Any:
        return from_plain(json.loads(bytes(record)), self._makers())

    def _describe(self, value: Any) -> dict[str, Any] | None:
        """A value of a type that plain data lack as an object with one key; None for other values."""
        return {"complex": [to_plain(value.real), to_plain(value.imag)]} if type(value) is complex else None

    def _makers(self) -> Mapping[str, Callable[[Any], Any]]:
        """The functions that make values of such objects, by key."""
        return {"complex": _complex}

    def _is_exact(self, value: Any) -> bool:
        return type(value) in _EXACT or isinstance(value, np.generic)

    def _check(self, value: Any) -> None:
        """Check that a value would come back with the same type.

        Raises:
            ConfigError: it would not.
        """
        kind = type(value)
        if kind in (list, tuple, frozenset):
            for item in value:
                self._check(item)
        elif kind is dict:
            for key, item in value.items():
                self._check(key)
                self._check(item)
        elif kind in (np.ndarray, np.memmap):
            if value.dtype == object:
                self._check(value.ravel().tolist())
        elif not self._is_exact(value):
            raise ConfigError(f"a {kind.__module__}.{kind.__qualname__} cannot be written: {value!r:.80}")


def _complex(parts: Any) -> complex:
    real, imaginary = parts
    return complex(from_plain(real), from_plain(imaginary))
