"""Padded and ragged batches: the right values, in a form that does not depend on which samples are
in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_or_stand_in import torch

from data_stack.exception import ConfigError
from data_stack.loader import Collation, Concatenated, Padded, Ragged
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import stack_samples

TEXTS: list[dict[str, Any]] = [
    {"tokens": np.array([1, 2, 3], np.int32), "text": "abc", "label": 0},
    {"tokens": np.array([4], np.int32), "text": "d", "label": 1},
    {"tokens": np.array([], np.int32), "text": "", "label": 0},
]
EQUALLY_LONG: list[dict[str, Any]] = [
    {"tokens": np.array([n, n], np.int32), "text": "ab", "label": n} for n in range(4)
]


def padded(samples: list[Any], collation: Collation) -> Any:
    """What becomes of tuples and dicts as samples, and of arrays and lists as a bare column."""
    return collation.collate(
        stack_values(samples) if isinstance(samples[0], list) else stack_samples(samples)
    )


# ---------------------------------------------------------------------- padded


def test_values_are_filled_up_to_the_longest_of_the_batch() -> None:
    batch = padded(TEXTS, Padded())

    assert list(batch) == ["tokens", "text", "label", "tokens_lengths"]
    assert batch["tokens"].tolist() == [[1, 2, 3], [4, 0, 0], [0, 0, 0]]
    assert batch["tokens"].dtype == np.int32
    assert batch["tokens_lengths"].tolist() == [3, 1, 0]
    assert batch["tokens_lengths"].dtype == np.int64
    assert batch["text"].tolist() == ["abc", "d", ""]
    assert batch["label"].tolist() == [0, 1, 0]


@pytest.mark.parametrize("collation", [Padded(), Padded({"tokens": -1}), Concatenated()])
def test_a_batch_of_equally_long_values_has_the_same_form(collation: Collation) -> None:
    ragged, even = padded(TEXTS, collation), padded(EQUALLY_LONG, collation)

    assert list(ragged) == list(even)
    for one, other in zip(ragged.values(), even.values(), strict=True):
        if isinstance(one, Ragged):
            one, other = one.values, other.values
        assert (one.dtype, one.ndim) == (other.dtype, other.ndim)


def test_lengths_come_after_tuples_and_beside_bare_columns() -> None:
    lists = [[1, 2], [3], [4, 5, 6]]
    in_tuples = padded([(values, n, values[:1] * n) for n, values in enumerate(lists)], Padded())
    bare = padded(lists, Padded())

    assert [part.tolist() for part in in_tuples] == [
        [[1, 2, 0], [3, 0, 0], [4, 5, 6]],
        [0, 1, 2],
        [[0, 0], [3, 0], [4, 4]],
        [2, 1, 3],
        [0, 1, 2],
    ]
    assert [part.tolist() for part in bare] == [[[1, 2, 0], [3, 0, 0], [4, 5, 6]], [2, 1, 3]]
    assert padded(lists, Padded(lengths=False)).tolist() == [[1, 2, 0], [3, 0, 0], [4, 5, 6]]


def test_columns_are_named_by_keys_and_by_positions() -> None:
    samples = [([1], [1.5, 2.5], "a"), ([2, 3], [3.5], "b")]

    first = padded(samples, Padded({0: 0}))
    second = padded(samples, Padded({1: np.nan}))

    assert first[0].tolist() == [[1, 0], [2, 3]]
    assert first[1].dtype == object
    assert first[3].tolist() == [1, 2]
    assert second[0].dtype == object
    assert np.array_equal(second[1], [[1.5, 2.5], [3.5, np.nan]], equal_nan=True)


def test_each_column_has_its_own_padding_value_and_dtype() -> None:
    samples = [{"tokens": [1, 2], "labels": [1, 2]}, {"tokens": [], "labels": []}]

    batch = padded(samples, Padded({"tokens": 9, "labels": -100}, lengths=False))

    assert batch["tokens"].tolist() == [[1, 2], [9, 9]]
    assert batch["labels"].tolist() == [[1, 2], [-100, -100]]
    assert batch["tokens"].dtype == np.int64  # an empty list is no floats


def test_values_are_padded_to_a_length_or_a_multiple() -> None:
    values = [[1, 2, 3], [4]]

    assert padded(values, Padded(to=5))[0].shape == (2, 5)
    assert padded(values, Padded(multiple_of=4))[0].shape == (2, 4)
    assert padded(values, Padded(multiple_of=4, to=3))[0].shape == (2, 3)
    assert padded([[1, 2], [3, 4]], Padded(multiple_of=4))[0].tolist() == [
        [1, 2, 0, 0],
        [3, 4, 0, 0],
    ]
    assert padded([[], []], Padded(multiple_of=4))[0].shape == (2, 0)


def test_pictures_are_padded_in_both_dimensions() -> None:
    pictures = [np.full((2, 3, 3), 1, np.uint8), np.full((4, 1, 3), 2, np.uint8)]

    batch, shapes = padded(pictures, Padded(255, multiple_of=(1, 4), lengths=2))

    assert batch.shape == (2, 4, 4, 3)
    assert batch.dtype == np.uint8
    assert (batch[0, :2, :3] == 1).all()
    assert (batch[1, :4, :1] == 2).all()
    assert (batch == 255).sum() == batch.size - pictures[0].size - pictures[1].size
    assert shapes.tolist() == [[2, 3], [4, 1]]
    assert padded(pictures, Padded(to=(None, 5)))[0].shape == (2, 4, 5, 3)
    assert padded([np.ones((2, 2)), np.ones((2, 2))], Padded(to=(None, 3)))[0].shape == (2, 2, 3)


def test_an_empty_list_among_lists_of_lists_has_no_rows() -> None:
    values = [[[1, 2], [3, 4]], [], [[5, 6]]]

    assert padded(values, Padded())[0].tolist() == [
        [[1, 2], [3, 4]],
        [[0, 0], [0, 0]],
        [[5, 6], [0, 0]],
    ]
    assert padded(values, Concatenated()).values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert padded(values, Concatenated()).lengths.tolist() == [2, 0, 1]


def test_values_of_several_dtypes_get_one_that_holds_all() -> None:
    arrays = [np.array([1, 2], np.uint8), np.array([-1], np.int8)]

    assert padded(arrays, Padded())[0].dtype == np.int16
    assert padded([torch.ones(2), torch.ones(3)], Padded())[0].dtype == np.float32
    with pytest.raises(ConfigError, match="int64 and uint64, which no dtype holds exactly"):
        padded([np.array([1, 2], np.uint64), np.array([-1])], Padded())


@pytest.mark.parametrize(
    ("dtype", "value"), [("u1", -1), ("i4", 0.5), ("i8", np.nan), ("f4", "x"), ("i4", None)]
)
def test_a_padding_value_beyond_the_dtype_is_always_an_error(dtype: str, value: Any) -> None:
    for lengths in ((2, 1), (2, 2)):
        with pytest.raises(ConfigError, match=r"which cannot hold the padding value"):
            padded([np.zeros(length, dtype) for length in lengths], Padded(value))


@pytest.mark.parametrize(
    ("samples", "collation", "message"),
    [
        ([[1, 2], [3], [1, 2, 3]], Padded(to=2), r"a value of shape \(3,\) at place 2 of the batch.*truncate=True"),
        ([{"a": [1, 2]}, {"a": None}], Padded(), r"column 'a' .* at place 1 of the batch None"),
        ([{"a": [1, 2]}, {"a": [[1], [2, 3]]}], Padded(), r"at place 1 of the batch \[\[1\], \[2, 3\]\]"),
        ([(np.ones(2),), (np.ones((1, 2)),)], Padded(), r"column 0 has .* shape \(2,\), at place 1 \(1, 2\)"),
        ([{"a": "x"}], Padded({"a": 0}), "column 'a' has no arrays"),
        ([{"a": 1}], Padded({"b": 0}), "no column 'b'"),
        ([{"a": [1], "a_lengths": 3}], Padded(), "a column 'a_lengths'"),
        ([[1, 2]], Padded(to=(None, 3)), "to is for 2 dimensions"),
        ([np.ones((2, 3)), np.ones((2, 4))], Concatenated(), r"differ in more than their first dimension: .*at place 1 \(2, 4\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_collated_is_named(
    samples: list[Any], collation: Collation, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        padded(samples, collation)


@pytest.mark.parametrize(
    "arguments", [{"to": -1}, {"multiple_of": 0}, {"truncate": True}, {"lengths": -1}]
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Padded(**arguments)


# ---------------------------------------------------------------------- ragged


def test_values_come_one_after_the_other() -> None:
    batch = padded(TEXTS, Concatenated())

    assert (batch["tokens"].values.dtype, batch["tokens"].values.tolist()) == (
        np.int32,
        [1, 2, 3, 4],
    )
    assert batch["tokens"].offsets.tolist() == [0, 3, 4, 4]
    assert [row.tolist() for row in batch["tokens"]] == [[1, 2, 3], [4], []]
    assert batch["tokens"].lengths.tolist() == [3, 1, 0]
    assert batch["tokens"][-2].tolist() == [4]
    assert batch["tokens"][0].base is batch["tokens"].values
    assert batch["text"].tolist() == ["abc", "d", ""]
    assert batch["tokens"].nbytes == 4 * 4 + 4 * 8


def test_a_ragged_array_is_checked() -> None:
    for offsets in ([0, 2], [1, 3], [0, 3, 2, 3], [], [[0, 3]], [0.0, 3.0]):
        with pytest.raises(ConfigError):
            Ragged(np.arange(3), np.array(offsets))
    with pytest.raises(IndexError):
        Ragged(np.arange(4), np.array([0, 1, 4]))[2]
