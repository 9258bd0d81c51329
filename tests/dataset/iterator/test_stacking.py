"""Values keep their values when they become columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_or_stand_in import torch

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import stack_samples


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        ([1, 2], np.int64, (2,)),
        ([1, 2.5], np.float64, (2,)),
        ([1, float("nan")], np.float64, (2,)),
        ([1, 1e300, float("inf")], np.float64, (3,)),
        ([2**53 + 1, float("nan")], object, (2,)),
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
def test_columns_have_the_dtype_that_holds_the_values_exactly(
    values: list[Any], dtype: Any, shape: tuple[int, ...]
) -> None:
    column = stack_values(values)

    assert column.dtype == dtype
    assert column.shape == shape


@pytest.mark.parametrize(
    "samples", [[(1, 2), (1,)], [{"a": 1}, {"b": 1}], [{"a": 1}, (1,)], [(1, 2), 7]]
)
def test_samples_of_different_make_are_an_error(samples: list[Any]) -> None:
    with pytest.raises(ConfigError, match="samples of one batch differ"):
        stack_samples(samples)
