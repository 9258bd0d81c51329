"""JSON as records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from data_stack.codecs.codec import Codec
from data_stack.codecs.registry import register_codec
from data_stack.util.request_limit import check_request

#: Values of records up to this size take a few MiB at most.
_HARMLESS_BYTES = 1 << 17


@register_codec
@dataclass(frozen=True, repr=False)
class JsonCodec(Codec):
    """JSON in UTF-8: None, booleans, numbers, text, lists and dicts of them whose keys are text.

    Tuples come back as lists, numpy scalars as Python numbers. Values that JSON would change are refused: keys that are not text
    (they would come back as text), arrays and bytes. NaN and the infinities are neither written nor read.
    """

    name, extensions, media_type = "json", ("json", "jsn"), "application/json"

    def encode(self, value: Any) -> bytes:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        except RecursionError as error:
            raise ValueError("a value is nested too deeply for JSON") from error
        _check_keys(value)
        return text.encode("utf-8")

    def decode(self, record: bytes) -> Any:
        if len(record) > _HARMLESS_BYTES:
            check_request(_object_bytes(record), "a record of JSON")
        try:
            return json.loads(str(record, "utf-8"), parse_constant=_refusal, parse_float=_finite)
        except RecursionError as error:
            raise ValueError("JSON is nested too deeply") from error


def _object_bytes(record: bytes) -> int:
    """The approximate memory of the objects in a JSON text, from its numbers of dicts, lists and items."""
    return len(record) + 184 * record.count(b"{") + 56 * record.count(b"[") + 40 * record.count(b",")


def _plain(part: Any) -> Any:
    """A numpy scalar as a Python number."""
    if isinstance(part, np.generic) and part.dtype.kind in "biuf" and part.itemsize <= 8:
        return part.item()
    raise TypeError(f"JSON has no {type(part).__name__} ({part!r:.60}); the type tree holds arrays and bytes too")


def _check_keys(value: Any) -> None:
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if not all(isinstance(key, str) for key in part):
                raise TypeError("JSON allows only text as keys of dicts; the types msgpack and tree allow others")
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)


def _refusal(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is too large for a float")
    return number
