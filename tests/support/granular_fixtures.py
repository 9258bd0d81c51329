"""Datasets that the real Granular wrote, with what it decoded of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parent.parent / "formats" / "records" / "fixtures" / "granular"


def fixture_folder(name: str) -> Path:
    """Where a dataset lies: ``small_new``, ``resumed`` and ``sharded`` by 0.24.2, ``small_old`` by
    0.21.2.
    """
    return FIXTURES / name


def expected_of(name: str) -> dict[str, Any]:
    """What Granular says of it; ``decode`` is the list of its samples."""
    text = (FIXTURES / f"{name}.expected.json").read_text(encoding="utf-8")
    with np.load(FIXTURES / f"{name}.expected.npz", allow_pickle=False) as arrays:
        expected: dict[str, Any] = _with_arrays(json.loads(text), dict(arrays))
    return expected


def _with_arrays(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "__npz__" in value:
        return arrays[value["__npz__"]]
    if set(value) == {"__hex__"}:
        return bytes.fromhex(value["__hex__"])
    return {key: _with_arrays(item, arrays) for key, item in value.items()}
