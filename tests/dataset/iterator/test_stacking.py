"""Values keep their values when they become columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import join_columns, stack_samples

VALUES = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.booleans(), st.none(), st.lists(st.integers(0, 9))
)


def as_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@given(values=st.lists(VALUES, min_size=2), data=st.data())
def test_joining_pieces_is_stacking_the_whole(values: list[Any], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(values) - 1))

    joined = join_columns([stack_values(values[:cut]), stack_values(values[cut:])])

    for one, other in zip(joined.tolist(), stack_values(values).tolist(), strict=True):
        assert as_plain(one) == as_plain(other) or math.isclose(float(one), float(other))


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        ([1, 2], np.int64, (2,)),
        ([1, 2.5], np.float64, (2,)),
        ([2**63, -1], object, (2,)),
        ([2**70, 2**70], object, (2,)),
        (["a", "b\0"], object, (2,)),
        ([None, 1], object, (2,)),
        ([np.int8(1), np.int8(2)], np.int8, (2,)),
        ([np.uint64(1), np.int64(2)], object, (2,)),
        ([np.zeros((2, 3), np.float32)] * 4, np.float32, (4, 2, 3)),
        ([np.zeros(2), np.zeros(3)], object, (2,)),
        ([torch.zeros(2, 2)] * 3, np.float32, (3, 2, 2)),
        ([torch.zeros(2, dtype=torch.bfloat16)] * 3, object, (3,)),
        ([[1, 2], [3, 4]], np.int64, (2, 2)),
        ([[1, 2], [3]], object, (2,)),
        ([(torch.ones(2, requires_grad=True), 1)], object, (1,)),
        ([np.datetime64("2026-01-01")] * 2, np.dtype("<M8[D]"), (2,)),
    ],
)
def test_columns_have_the_dtype_that_holds_the_values_exactly(values: list[Any], dtype: Any, shape: tuple[int, ...]) -> None:
    column = stack_values(values)

    assert column.dtype == dtype
    assert column.shape == shape


@pytest.mark.parametrize("samples", [[(1, 2), (1,)], [{"a": 1}, {"b": 1}], [{"a": 1}, (1,)], [(1, 2), 7]])
def test_samples_of_different_make_are_an_error(samples: list[Any]) -> None:
    with pytest.raises(ConfigError, match="samples of one batch differ"):
        stack_samples(samples)
