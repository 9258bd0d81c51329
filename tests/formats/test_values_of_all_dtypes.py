"""Each writer with values of each type: they come back exactly equal, or an error of ours says
which cannot be stored.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_values import EXAMPLES, meaning
from torch_or_stand_in import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.conversion import convert
from data_stack.formats.registry import format_named, writable_formats
from data_stack.io.location import location_of

MANY = 40  # more than are looked at to tell what a column holds
COLUMNS: dict[str, list[Any]] = {
    **{f"{number}, {type(value).__name__}": [value] * 2 for number, value in enumerate(EXAMPLES)},
    "floats": [1 / 3, float("nan"), -0.0],
    "times of several units": [
        np.datetime64("9999-12-31", "D"),
        np.datetime64(1, "ns"),
        np.datetime64(2, "s"),
    ],
    "missing times": [np.datetime64(3, "ns"), np.datetime64("NaT", "ns")],
    "int64": [np.int64(-(2**63)), np.int64(2**63 - 1)],
    "uint64": [np.uint64(0), np.uint64(2**64 - 1)],
    "integers": [1, -(2**63), 2**63 - 1],
    "unsigned integers": [1, 2**63, 2**64 - 1],
    "large integers": [1, 2**70],
    "a late unsigned integer": [1] * MANY + [2**63 + 5],
    "a late None": [1] * MANY + [None],
    "a late Decimal": ["a"] * MANY + [Decimal("0.1")],
    "complex numbers": [1j, 2, 0j],
    "Decimals": [
        Decimal("0.10"),
        Decimal("1E+5"),
        Decimal("-0"),
        Decimal("123456789012345678901234567890.5"),
    ],
    "arrays of several dtypes": [np.array([1], np.uint64), np.array([-1], np.int64)],
    "sparse tensors": [torch.ones(2).to_sparse()] * 2,
}


@pytest.mark.parametrize("target", writable_formats())
def test_values_are_read_back_or_refused_leaving_nothing(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_ISOLATION", "off")  # a process for each file of HDF5
    stored: list[str] = []
    suffix = next(iter(format_named(target).suffixes), "")
    for name, values in COLUMNS.items():
        path = tmp_path / f"out{suffix}"
        pictures = [np.zeros((2, 2, 3), np.uint8)] * len(values)
        iterator = SequenceDatasetIterator([values, pictures]).as_dict("x", "image")
        columns = None if target == "images" else "x"
        try:
            convert(iterator, path, target_format=target, columns=columns)
        except ConfigError:
            assert not path.exists(), name
            continue
        stored.append(name)
        source = format_named(target).open_source(location_of(path))
        (name_in_result,) = source.select_columns({"x": "x"} if "x" in source.keys else None).schema
        found = source.read(np.arange(len(values)), [name_in_result])[name_in_result]
        source.resources.close()
        path.rename(tmp_path / f"{len(stored)}{path.suffix}")
        assert [meaning(each) for each in found] == [meaning(each) for each in values], (
            name,
            found,
        )
    assert "int64" in stored
    # Readers of JSON lines take integers for int64, unless they are told.
    assert ("uint64" in stored) == (target != "jsonl")
    assert "Decimals" not in stored
