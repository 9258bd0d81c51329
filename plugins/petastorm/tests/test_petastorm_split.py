"""The pseudorandom split: each bucket is in one subset, and the text of a value names its
bucket.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm.pseudorandom_split import bucket_of, buckets_of_subset, texts_of
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column

FRACTIONS = st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(sum)
LAST_BUCKET = 2**63 - 2


@given(weights=FRACTIONS, bucket=st.integers(0, LAST_BUCKET))
def test_a_bucket_is_in_at_most_one_subset(weights: list[int], bucket: int) -> None:
    fractions = [weight / sum(weights) for weight in weights]
    subsets = [buckets_of_subset(fractions, index) for index in range(len(fractions))]

    n_subsets = sum(bucket in subset for subset in subsets)

    assert n_subsets <= 1
    for before, after in itertools.pairwise(subsets):
        assert before.stop == after.start


def test_subsets_divide_the_buckets_by_their_fractions() -> None:
    first, second = (buckets_of_subset([0.25, 0.75], index) for index in range(2))

    assert first.start == 0
    assert first.stop == second.start == 2**61
    assert second.stop >= LAST_BUCKET


def test_an_empty_fraction_has_no_buckets() -> None:
    empty = buckets_of_subset([0.5, 0.0, 0.5], 1)

    assert empty.start == empty.stop


@given(st.text())
def test_every_text_has_a_bucket(text: str) -> None:
    assert 0 <= bucket_of(text) <= LAST_BUCKET


@pytest.mark.parametrize(
    ("column", "dtype", "texts"),
    [
        (np.array([1, -2], np.int8), None, ["1", "-2"]),
        (np.array([True, False]), None, ["True", "False"]),
        (np.array([0.1], np.float32), None, ["0.1"]),
        (np.array(["2020-01-01"], "M8[D]"), None, ["2020-01-01"]),
        (object_column("a", None), None, ["a", "None"]),
        (object_column(None, 0.5), None, ["nan", "0.5"]),
        (object_column(None, np.datetime64("2020-01-01", "us")), None, ["NaT", "2020-01-01"]),
        (object_column(None, np.datetime64("2020-01-01", "D")), None, ["None", "2020-01-01"]),
        (object_column(None, Decimal("1.50")), None, ["None", "1.50"]),
        (object_column(None), np.dtype("float32"), ["nan"]),
        (object_column(None), np.dtype("M8[ns]"), ["NaT"]),
        (object_column(None), np.dtype("int64"), ["None"]),
        (object_column(None), Decimal, ["None"]),
        (object_column(None), None, ["None"]),
    ],
)
def test_the_text_of_a_missing_value_depends_on_the_dtype(
    column: Any, dtype: Any, texts: list[str]
) -> None:
    found = list(texts_of(column, dtype))

    assert [text.split("T00:00")[0] for text in found] == texts
