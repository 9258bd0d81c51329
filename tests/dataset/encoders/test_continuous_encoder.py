"""Real numbers, scaled: as numpy and scikit-learn scale them, in blocks, with what is no number
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from torch_or_stand_in import torch

from data_stack.dataset.encoders import ContinuousEncoder, EncodingError
from data_stack.exception import ConfigError

NUMBERS = np.random.default_rng(3).normal(100.0, [1.0, 50.0, 0.001], size=(500, 3))
PEERS = {"standard": StandardScaler(), "min_max": MinMaxScaler(), "max_abs": MaxAbsScaler()}


@pytest.mark.parametrize("scaling", PEERS)
@pytest.mark.parametrize("with_nan", [False, True])
def test_columns_are_scaled_as_scikit_learn_scales_them(scaling: Any, with_nan: bool) -> None:
    numbers = NUMBERS.copy()
    if with_nan:
        numbers[::7, 0] = np.nan
        numbers[3, 1] = np.nan

    encoder = ContinuousEncoder(scaling, dtype="float64").fit(numbers)

    assert np.allclose(
        encoder.transform(numbers),
        PEERS[scaling].fit_transform(numbers),
        rtol=1e-10,
        atol=1e-12,
        equal_nan=True,
    )
    assert np.allclose(encoder.inverse(encoder.transform(numbers)), numbers, equal_nan=True)


@given(
    numbers=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 30), st.integers(0, 3)), elements=st.floats(-1e6, 1e6)
    ),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    missing=st.sets(st.integers(0, 29)),
)
def test_blocks_cut_anywhere_give_the_moments_of_the_whole(
    numbers: Any, cuts: list[int], missing: set[int]
) -> None:
    rows = [row for row in missing if 0 < row < len(numbers)]
    numbers[rows] = np.nan
    blocks = np.split(numbers, sorted(cut for cut in cuts if cut <= len(numbers)))

    encoder = ContinuousEncoder(dtype="float64").fit(iter(blocks))

    deviation = np.nanstd(numbers, axis=0)
    assert np.allclose(encoder.centre, np.nanmean(numbers, axis=0), rtol=1e-9, atol=1e-9)
    is_spread = deviation > 1e-4
    assert np.allclose(encoder.scale[is_spread], deviation[is_spread], rtol=1e-6)


@pytest.mark.parametrize(
    "column",
    [
        [1, 2, 3],
        ["1", "2.0", " 3 "],
        [b"1", b"2", b"3"],
        np.array([1, 2, 3], dtype=np.uint8),
        torch.tensor([1, 2, 3]),
    ],
)
def test_whatever_spells_numbers_is_scaled(column: Any) -> None:
    encoder = ContinuousEncoder("min_max").fit(column)

    scaled = encoder.transform(column)

    assert (scaled.tolist(), scaled.dtype) == ([0, 0.5, 1], np.dtype(np.float32))


def test_missing_values_are_kept_or_made_the_centre_or_refused() -> None:
    column = [1.0, None, 3.0, float("nan")]

    kept = ContinuousEncoder().fit(column).transform(column)
    centred = ContinuousEncoder(missing="zeros").fit(column).transform(column)

    assert np.array_equal(kept, [-1, np.nan, 1, np.nan], equal_nan=True)
    assert centred.tolist() == [-1, 0, 1, 0]
    with pytest.raises(EncodingError, match="at position 1, a value is missing"):
        ContinuousEncoder(missing="error").fit(column)
    with pytest.raises(EncodingError, match="at position 3, a value is missing"):
        ContinuousEncoder(missing="error").fit([1.0, 3.0]).transform([1, 2, 3, None])


@pytest.mark.parametrize("value", ["x", [3, 4], {}, float("inf")])
def test_an_unscalable_value_is_named_by_its_position(value: Any) -> None:
    for encode in (ContinuousEncoder().fit, ContinuousEncoder("none").transform):
        with pytest.raises(EncodingError) as caught:
            encode([1, 2, value])
        assert caught.value.position == 2
    with pytest.raises(EncodingError) as caught:
        ContinuousEncoder().fit([np.zeros((2, 2)), np.array([[1, 2], [1, np.inf]])])
    assert caught.value.position == 3


@pytest.mark.parametrize("scaling", PEERS)
def test_nan_and_values_beyond_float64_cannot_be_learned(scaling: Any) -> None:
    for column in (np.array([[1.0, np.nan], [2.0, np.nan]]), [float("nan")]):
        with pytest.raises(ConfigError, match="are NaN"):
            ContinuousEncoder(scaling).fit(column)
    if scaling != "max_abs":
        with pytest.raises(ConfigError, match="overflow"):
            ContinuousEncoder(scaling).fit([-1.7e308, 1.7e308, 0.0, 1.7e308, -1.7e308])


def test_values_of_another_shape_are_refused() -> None:
    encoder = ContinuousEncoder().fit(NUMBERS)

    with pytest.raises(
        ConfigError, match=r"fitted on values of shape \(3,\), and these have the shape \(2,\)"
    ):
        encoder.transform(NUMBERS[:, :2])
    with pytest.raises(EncodingError):
        encoder.fit([NUMBERS, NUMBERS[:, :2]])
