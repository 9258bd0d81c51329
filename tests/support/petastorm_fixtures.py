"""Datasets that the real Petastorm wrote, and what Petastorm, or numpy and OpenCV, decoded."""

from __future__ import annotations

import hashlib
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parent.parent / "formats" / "parquet" / "fixtures" / "petastorm"


def petastorm_folder(name: str) -> Path:
    """Return where a dataset lies.

    Args:
        name: ``hello_world`` (a half of it) or ``timeseries``, of Petastorm 0.13.1;
            ``legacy/0.4.0`` or ``legacy/0.7.6``.
    """
    return FIXTURES / name


def expected_timeseries() -> dict[str, list[Any]]:
    """Return the values of the 5,000 rows of ``timeseries``, by field."""
    with np.load(FIXTURES / "timeseries.expected.npz", allow_pickle=False) as archive:
        arrays = dict(archive)
    # The lists of events are stored as one array, with the length of each; -1 for null.
    lengths = arrays.pop("events_len")
    is_null = arrays.pop("events_is_null")
    ends = np.cumsum(np.maximum(lengths, 0))
    events = np.split(arrays.pop("events_flat"), ends[:-1])

    expected: dict[str, list[Any]] = {name: list(values) for name, values in arrays.items()}
    expected["events"] = []
    for value, is_missing in zip(events, is_null, strict=True):
        expected["events"].append(None if is_missing else value)
    expected["vehicle"] = [str(name) for name in expected["vehicle"]]
    expected["price"] = [Decimal(str(text)) for text in expected["price"]]
    for row in range(0, len(expected["temperature"]), 7):
        expected["temperature"][row] = None
    return expected


def expected_digests(name: str) -> dict[int, dict[str, str]]:
    """Return the :func:`value_digest` of each field, by the id of a row.

    Args:
        name: ``hello_world``, ``0.4.0`` or ``0.7.6``.
    """
    digests = json.loads((FIXTURES / "expected_digests.json").read_text())[name]
    return {int(number): row for number, row in digests.items()}


def value_digest(value: Any) -> str:
    """Return a digest of a value, its dtype and its shape."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:16]


def _canonical(value: Any) -> str:
    """Return a text that is equal for equal values of equal types."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"A{_canonical_array(value)}"
    if isinstance(value, Decimal):
        return f"D{value.normalize()}"
    if isinstance(value, bytes):
        return "B" + bytes(value).hex()
    if isinstance(value, str):
        return "S" + str(value)
    return f"N{np.asarray(value).dtype.str} {np.asarray(value).item()!r}"


def _canonical_array(array: Any) -> str:
    shape = list(array.shape)
    if array.dtype.kind == "U":
        return f"{shape}{array.tolist()}"
    if array.dtype.kind == "S":
        return f"{shape}{[text.hex() for text in array.reshape(-1).tolist()]}"
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{array.dtype.str}{shape}{digest}"


#: The packages that Petastorm's own unpickler allows.
_ALLOWED_PACKAGES = {"petastorm", "collections", "numpy", "pyspark", "decimal", "builtins"}


class StandIn:
    """Stands for a class of Petastorm."""

    def __new__(cls, *values: Any) -> Any:
        return super().__new__(cls)


class Unpickler(pickle.Unpickler):
    """Lets through what Petastorm's own unpickler does, with a :class:`StandIn` for its classes."""

    def find_class(self, module: str, name: str) -> Any:
        package, _, _ = module.partition(".")
        assert package in _ALLOWED_PACKAGES
        if package == "petastorm":
            return StandIn
        return super().find_class(module, name)
