"""Datasets that the real Petastorm wrote, with what it, or numpy and OpenCV alone, decoded of them."""

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
    """Where a dataset lies: ``hello_world`` (a half of it), ``timeseries`` by 0.13.1, ``legacy/0.4.0``, ``legacy/0.7.6``."""
    return FIXTURES / name


def expected_timeseries() -> dict[str, list[Any]]:
    """The values of the 5,000 rows of ``timeseries``, by field."""
    with np.load(FIXTURES / "timeseries.expected.npz", allow_pickle=False) as arrays:
        found = dict(arrays)
    lengths, is_null = found.pop("events_len"), found.pop("events_is_null")
    events = np.split(found.pop("events_flat"), np.cumsum(np.maximum(lengths, 0))[:-1])
    expected = {name: list(values) for name, values in found.items()}
    expected["events"] = [
        None if missing else value for value, missing in zip(events, is_null, strict=True)
    ]
    expected["vehicle"] = list(map(str, expected["vehicle"]))
    expected["price"] = [Decimal(str(text)) for text in expected["price"]]
    expected["temperature"] = [
        None if row % 7 == 0 else value for row, value in enumerate(expected["temperature"])
    ]
    return expected


def expected_digests(name: str) -> dict[int, dict[str, str]]:
    """By the id of a row and its field :func:`value_digest` of the value: of ``hello_world``, ``0.4.0`` and ``0.7.6``."""
    digests = json.loads((FIXTURES / "expected_digests.json").read_text())[name]
    return {int(number): row for number, row in digests.items()}


def value_digest(value: Any) -> str:
    """A digest of a value, its dtype and its shape."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:16]


def _canonical(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U":
            return f"A{list(value.shape)}{value.tolist()}"
        if value.dtype.kind == "S":
            return f"A{list(value.shape)}{[text.hex() for text in value.reshape(-1).tolist()]}"
        return f"A{value.dtype.str}{list(value.shape)}{hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, Decimal):
        return f"D{value.normalize()}"
    if isinstance(value, bytes):
        return "B" + bytes(value).hex()
    if isinstance(value, str):
        return "S" + str(value)
    return f"N{np.asarray(value).dtype.str} {np.asarray(value).item()!r}"


class Found:
    """Stands for a class of Petastorm's."""

    def __new__(cls, *values: Any) -> Any:
        return super().__new__(cls)


class Unpickler(pickle.Unpickler):
    """Lets through what Petastorm's own unpickler does, with its classes as :class:`Found`."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.split(".")[0] in {
            "petastorm",
            "collections",
            "numpy",
            "pyspark",
            "decimal",
            "builtins",
        }
        return Found if module.startswith("petastorm") else super().find_class(module, name)
