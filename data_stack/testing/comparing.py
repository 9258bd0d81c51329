"""Compares samples, columns and bytes in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

#: Bytes that an error shows of each of two contents that differ.
_N_SHOWN_BYTES = 20


def assert_same(actual: Any, expected: Any) -> None:
    """Check that two samples, batches or lists of them are equal.

    Arrays and tensors are equal by shape, dtype and values. NaN equals NaN.
    """
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping)
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert isinstance(actual, (tuple, list))
        assert len(actual) == len(expected)
        for actual_part, expected_part in zip(actual, expected, strict=True):
            assert_same(actual_part, expected_part)
    elif hasattr(expected, "dtype") and hasattr(expected, "shape"):
        assert tuple(np.shape(actual)) == tuple(expected.shape)
        assert actual.dtype == expected.dtype
        if expected.dtype == object:
            assert_same(np.asarray(actual).tolist(), np.asarray(expected).tolist())
        else:
            np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))
    else:
        are_both_nan = actual != actual and expected != expected
        assert actual == expected or are_both_nan


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Check that two columns, arrays of numpy, are equal to the last bit."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype == object:
        is_same = actual.tolist() == expected.tolist()
    else:
        is_same = actual.tobytes() == expected.tobytes()
    assert is_same, f"{actual!r} is not {expected!r}"


def assert_same_bytes(actual: bytes, expected: bytes) -> None:
    """Check that bytes are equal; the error shows the first difference.

    A plain ``assert`` would take minutes for a few 100 kB that differ: pytest compares them byte by
    byte, and in CI prints them whole.
    """
    if actual == expected:
        return
    offset = _first_difference(actual, expected)
    end = offset + _N_SHOWN_BYTES
    pytest.fail(
        f"{len(actual):,} bytes differ from the {len(expected):,} expected ones from offset "
        f"{offset:,} on: {actual[offset:end]!r} instead of {expected[offset:end]!r}"
    )


def _first_difference(actual: bytes, expected: bytes) -> int:
    """Return the first offset at which bytes differ; the length of the shorter ones if none."""
    for offset, (actual_byte, expected_byte) in enumerate(zip(actual, expected, strict=False)):
        if actual_byte != expected_byte:
            return offset
    return min(len(actual), len(expected))
