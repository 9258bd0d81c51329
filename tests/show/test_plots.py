"""Plots of columns and class balance."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError

META = DatasetMeta(
    IteratorMeta(),
    "pets/train",
    "pets",
    "train",
    class_names=("cat", "dog"),
    column_names=("weight", "label"),
)
RAMP = np.append(np.linspace(0, 9.9, 99), np.nan)


def pets() -> Any:
    return InformedDatasetIterator(SequenceDatasetIterator([RAMP, [0] * 70 + [1] * 30]), META)


def heights(figure: Any) -> list[float]:
    return [bar.get_height() for bar in figure.axes[0].patches]


def ticks(figure: Any) -> list[str]:
    axes = figure.axes[0]
    return [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]


def test_the_target_is_bars_of_classes_by_name() -> None:
    for figure in (pets().plot(), pets().report().plot()):
        assert heights(figure) == [70, 30]
        assert {"cat", "dog"} <= set(ticks(figure))


def test_many_numbers_are_a_histogram_without_missing_ones() -> None:
    figure = pets().plot("weight", bins=10, title="Weights")

    assert len(heights(figure)) == 10
    assert sum(heights(figure)) == 99
    assert figure.axes[0].get_title() == "Weights"
    assert figure.axes[0].get_xlabel() == "weight (1 missing)"


@pytest.mark.parametrize("hole", [None, pd.NA, np.ma.masked])
def test_numbers_and_times_beside_missing_ones_are_a_histogram(
    hole: Any,
) -> None:
    day = datetime.datetime(2026, 1, 1)
    columns: list[list[Any]] = [
        [number / 7 for number in range(100)],
        list(np.arange(100)),
        [decimal.Decimal(number) / 7 for number in range(100)],
        [2**60 * number for number in range(100)],
        list(np.datetime64("2026-01-01") + np.arange(100)),
        [day + datetime.timedelta(days=number) for number in range(100)],
        [pd.Timestamp(day) + pd.Timedelta(days=number) for number in range(100)],
    ]
    for values in columns:
        values[::10] = [hole] * 10

        figure = SequenceDatasetIterator([values]).as_dict("x").plot("x", bins=12)

        assert (len(heights(figure)), sum(heights(figure)), figure.axes[0].get_xlabel()) == (
            12,
            90,
            "x (10 missing)",
        )


def test_few_values_are_bars_with_one_of_the_missing_ones() -> None:
    figure = SequenceDatasetIterator([[1, 2, None, 2, pd.NA, 2]]).plot(0)

    assert heights(figure) == [1, 3, 2]
    assert "missing" in ticks(figure)
    words = [f"word {number * number % 97}" for number in range(1000)]
    assert len(SequenceDatasetIterator([words]).plot(0).axes[0].patches) == 50 - 1
    infinite = SequenceDatasetIterator([[None, float("inf"), *np.arange(40) / 3]]).plot(0)
    assert infinite.axes[0].get_xlabel() == "0 (1 missing, 1 infinite)"
    # numpy 2 refuses to divide them
    assert len(heights(SequenceDatasetIterator([2**60 + np.arange(40)]).plot(0))) == (
        30 if np.__version__ < "2" else 40
    )


@pytest.mark.parametrize("wrong", [{"column": "none"}, {"bins": 0}])
def test_what_cannot_be_plotted_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        pets().plot(**wrong)
    with pytest.raises(ConfigError, match="column"):
        SequenceDatasetIterator([np.zeros((3, 8, 9))]).plot(0)
    with pytest.raises(ConfigError, match="no samples"):
        pets().take(0).plot()
    with pytest.raises(ConfigError, match="target"):
        SequenceDatasetIterator([[1, 2]]).plot()
