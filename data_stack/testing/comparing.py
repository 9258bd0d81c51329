"""Compares samples, columns and bytes in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest


def assert_same(actual: Any, expected: Any) -> None:
    """Check that samples, batches or lists of them are equal, arrays and tensors by value and dtype."""
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping)
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert isinstance(actual, (tuple, list))
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif hasattr(expected, "dtype") and hasattr(expected, "shape"):
        assert tuple(np.shape(actual)) == tuple(expected.shape)
        assert actual.dtype == expected.dtype
        if expected.dtype == object:
            assert_same(np.asarray(actual).tolist(), np.asarray(expected).tolist())
        else:
            np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
    else:
        assert actual == expected or (actual != actual and expected != expected)  # NaN


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Check that two columns are equal to the last bit."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    same = (
        actual.tolist() == expected.tolist()
        if expected.dtype == object
        else actual.tobytes() == expected.tobytes()
    )
    assert same, f"{actual!r} is not {expected!r}"


def assert_same_bytes(actual: bytes, expected: bytes) -> None:
    """Fail with the first difference. (pytest would compare byte by byte, in CI whole: minutes for a few 100 kB.)"""
    if actual != expected:
        at = next(
            (i for i, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b),
            min(len(actual), len(expected)),
        )
        pytest.fail(
            f"{len(actual):,} bytes differ from the {len(expected):,} expected ones from offset {at:,} on: "
            f"{actual[at : at + 20]!r} instead of {expected[at : at + 20]!r}"
        )
