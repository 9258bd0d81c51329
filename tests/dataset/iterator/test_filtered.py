"""Filters: what a predicate is given, what it may answer, and how much is read."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from multiprocessing.pool import Pool
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns, Samples

from data_stack.dataset.iterator import (
    Batch,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.filtered import FilteredDatasetIterator
from data_stack.dataset.iterator.stacking import stack_samples, stack_values
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError, DatasetOutOfBoundsError


def pairs(n: int) -> list[tuple[int, str]]:
    return [(i, f"label {i % 3}") for i in range(n)]


def is_odd(number: int) -> bool:
    return number % 2 == 1


def test_samples_for_which_the_predicate_is_true_stay_in_their_order() -> None:
    filtered = FilteredDatasetIterator(Samples(pairs(10)), lambda sample: sample[0] > 5 or sample[1] == "label 0")

    assert list(filtered) == [(0, "label 0"), (3, "label 0"), (6, "label 0"), (7, "label 1"), (8, "label 2"), (9, "label 0")]
    assert filtered.indices.tolist() == [0, 3, 6, 7, 8, 9]


def test_each_sample_is_read_once_when_the_filter_is_made() -> None:
    source = Samples(pairs(5000))

    FilteredDatasetIterator(source, lambda sample: True)

    assert source.n_read == 5000


def test_with_a_column_only_that_column_is_read_and_in_blocks() -> None:
    source = Columns(np.zeros((50_000, 10)), np.arange(50_000) % 7)

    filtered = FilteredDatasetIterator(source, lambda label: label in {1, 2}, column=1)

    assert {key for key, _ in source.requests} == {1}
    assert sum(length for _, length in source.requests) == 50_000
    assert max(length for _, length in source.requests) <= 1 << 14
    assert filtered.indices.tolist() == [i for i in range(50_000) if i % 7 in {1, 2}]


def test_large_samples_are_read_few_at_a_time() -> None:
    source = Columns(np.zeros((40, 1 << 20), dtype=np.uint8))

    FilteredDatasetIterator(source, lambda picture: True, column=0)

    assert max(length for _, length in source.requests) <= 4


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (np.arange(3), int),
        (np.arange(3, dtype=np.uint8), int),
        (np.arange(3.0, dtype=np.float32), float),
        (np.array([True, False, True]), bool),
        (["a", "b", "c"], str),
        (np.array(["a", "b", "c"]), str),
        ([b"a", b"b", b"c"], bytes),
        ([None, None, None], type(None)),
        (np.array(["2020-01-01"] * 3, dtype="M8[ns]"), np.datetime64),
        (np.zeros((3, 2)), np.ndarray),
        (torch.arange(3), int),
        ([np.zeros(1), np.zeros(2), np.zeros(3)], np.ndarray),
        ([{"a": 1}, {}, {}], dict),
    ],
)
def test_a_column_gives_python_numbers_arrays_or_what_is_in_the_sample(column: Any, kind: type) -> None:
    given_to_it: list[Any] = []

    def predicate(value: Any) -> bool:
        given_to_it.append(value)
        return True

    FilteredDatasetIterator(SequenceDatasetIterator([column]), predicate, column=0)

    assert [type(value) for value in given_to_it] == [kind] * 3


def test_several_columns_are_one_argument_each() -> None:
    source = Samples([{"a": i, "b": i * i % 5, "c": None} for i in range(20)])

    filtered = FilteredDatasetIterator(source, lambda a, b: a < 10 and b == 1, column=["a", "b"])
    batched = FilteredDatasetIterator(source, lambda a, b: (a < 10) & (b == 1), column=("a", "b"), batched=True)

    assert [sample["a"] for sample in filtered] == [sample["a"] for sample in batched] == [1, 4, 6, 9]


@pytest.mark.parametrize("samples", [pairs(9), [{"x": i, "y": str(i)} for i in range(9)], [float(i) for i in range(9)]])
def test_a_batched_predicate_of_whole_samples_gets_batches(samples: list[Any]) -> None:
    def predicate(batch: Batch) -> Any:
        first = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else batch
        return first % 2 == 0

    filtered = FilteredDatasetIterator(Samples(samples), predicate, batched=True)

    assert list(filtered) == samples[::2]


@pytest.mark.parametrize("answer", [list, torch.tensor, np.array])
def test_a_batched_predicate_may_answer_with_any_array_of_bools(answer: Callable[..., Any]) -> None:
    source = SequenceDatasetIterator([np.arange(30)])

    filtered = FilteredDatasetIterator(source, lambda numbers: answer((numbers > 20).tolist()), column=0, batched=True)

    assert filtered.read_column(0).tolist() == list(range(21, 30))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda numbers: True, r"shape \(\)"),
        (lambda numbers: numbers, "int64"),
        (lambda numbers: np.ones(len(numbers) + 1, dtype=bool), r"shape \(1,\); it gave a ndarray of shape \(2,\)"),
        (lambda numbers: np.ones((len(numbers), 1), dtype=bool), r"of shape \(1, 1\)"),
        (lambda numbers: None, "NoneType"),
        (lambda numbers: [[1], [1, 2]], "list"),
    ],
)
def test_a_batched_predicate_that_gives_no_bools_is_refused(answer: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"samples 0 to 0 .*{said}"):
        FilteredDatasetIterator(SequenceDatasetIterator([np.arange(30)]), answer, column=0, batched=True)


@pytest.mark.parametrize(
    "truth", [np.bool_(True), torch.tensor(True), torch.tensor([1]), np.array([True]), np.array(2), "yes", 1, [0]]
)
def test_whatever_has_one_truth_is_an_answer(truth: Any) -> None:
    source = SequenceDatasetIterator([np.arange(3)])

    filtered = FilteredDatasetIterator(source, lambda sample: truth if sample[0] == 1 else None)

    assert [int(number) for (number,) in filtered] == [1]


@pytest.mark.parametrize(
    "answer", [np.array([True, False]), np.array([], dtype=bool), torch.tensor([True, False]), torch.empty(0)]
)
def test_an_answer_that_is_neither_true_nor_false_is_told_with_its_position(answer: Any) -> None:
    source = SequenceDatasetIterator([np.arange(100)])

    with pytest.raises(ConfigError, match=r"position 57 .*neither true nor false"):
        FilteredDatasetIterator(source, lambda number: answer if number == 57 else True, column=0)


def test_an_error_of_the_predicate_comes_through_with_a_note_of_the_position() -> None:
    source = SequenceDatasetIterator([np.arange(100)])

    with pytest.raises(ZeroDivisionError) as one:
        FilteredDatasetIterator(source, lambda number: 1 / (number - 57), column=0)
    with pytest.raises(KeyError) as many:
        FilteredDatasetIterator(source, lambda numbers: {"a": 1}["b"], column=0, batched=True)

    if sys.version_info >= (3, 11):
        assert "position 57" in one.value.__notes__[0]
        assert "samples 0 to 0" in many.value.__notes__[0]


def test_a_predicate_that_is_no_function_and_columns_that_are_not_there_are_refused() -> None:
    source = SequenceDatasetIterator([np.arange(3)])

    with pytest.raises(ConfigError, match="a predicate is a function"):
        FilteredDatasetIterator(source, 3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ConfigError, match="no column 1"):
        FilteredDatasetIterator(source, is_odd, column=1)
    with pytest.raises(ConfigError, match="at least one column"):
        FilteredDatasetIterator(source, is_odd, column=[])


@pytest.mark.parametrize("batched", [False, True])
def test_of_an_empty_iterator_nothing_is_asked(batched: bool) -> None:
    def predicate(*values: Any) -> Any:
        raise AssertionError

    filtered = FilteredDatasetIterator(Samples([]), predicate, column="x", batched=batched)

    assert len(filtered) == 0
    assert filtered.read_batch([]) == ()


def test_samples_of_different_columns_can_be_filtered_as_a_whole() -> None:
    samples: list[dict[str, int]] = [{"a": 1}, {"a": 1, "b": 2}, {"b": 3}]
    source = Samples(samples * 5)

    filtered = FilteredDatasetIterator(source, lambda sample: "b" in sample)

    assert list(filtered) == [{"a": 1, "b": 2}, {"b": 3}] * 5


def test_a_list_can_be_filtered() -> None:
    filtered = FilteredDatasetIterator([1, 2, 3, 4], is_odd)  # type: ignore[arg-type]  # whatever has len and [i]

    assert list(filtered) == [1, 3]


def test_a_pickle_carries_the_positions_and_reads_nothing() -> None:
    source = Samples(list(range(20)))
    filtered = FilteredDatasetIterator(source, is_odd)
    n_read = source.n_read

    copy = pickle.loads(pickle.dumps(filtered))

    assert copy.underlying_iterators[0].n_read == n_read
    assert list(copy) == list(range(1, 20, 2))
    assert copy._arguments() == {"predicate": is_odd, "column": None, "batched": False}


def test_a_filter_by_a_lambda_reaches_a_spawned_process_without_the_lambda(spawned: Pool) -> None:
    filtered = FilteredDatasetIterator(SequenceDatasetIterator([np.arange(6)]), lambda number: number > 3, column=0)

    copy = pickle.loads(pickle.dumps(filtered))
    found = spawned.apply(tuple, (filtered,))

    assert found == ((4,), (5,))
    assert "<lambda>" in copy._arguments()["predicate"]
    assert "define it at the top of a module" in copy._arguments()["predicate"]


def test_a_filter_is_a_layer_with_a_name_that_rebuilds_itself_and_keeps_the_meta() -> None:
    meta = DatasetMeta(IteratorMeta(0, 1, 1), dataset_name="pairs", class_names=("a", "b"))
    source = InformedDatasetIterator(SequenceDatasetIterator([np.arange(6), np.arange(6) % 2]), meta)

    filtered: Any = source.filter(is_odd, column=1)

    (layer,) = filtered._stacked_on()
    rebuilt = type(layer)._rebuilt([source], layer._arguments())
    assert list(rebuilt) == list(filtered) == [(1, 1), (3, 1), (5, 1)]
    assert filtered.dataset_meta.class_names == ("a", "b")
    assert filtered.dataset_meta.provenance == ("filtered",)


@given(
    numbers=st.lists(st.integers(-5, 5), max_size=30),
    threshold=st.integers(-6, 6),
    batched=st.booleans(),
    picks=st.lists(st.floats(0, 1, exclude_max=True), max_size=6),
)
def test_a_filter_of_a_view_gives_what_the_same_gives_with_lists(
    numbers: list[int], threshold: int, batched: bool, picks: list[float]
) -> None:
    below: DatasetIteratorIF = SequenceDatasetIterator([np.array(numbers, dtype=int), [str(n) for n in numbers]])[::-1]
    expected = [(n, str(n)) for n in reversed(numbers) if n > threshold]

    filtered = FilteredDatasetIterator(below, lambda number: number > threshold, column=0, batched=batched)

    indices = [int(pick * 2 * len(expected)) - len(expected) for pick in picks] if expected else []
    chosen = [expected[index] for index in indices]
    assert list(filtered) == expected == [filtered[i] for i in range(len(filtered))]
    assert filtered.__getitems__(indices) == chosen
    assert list(filtered[indices]) == chosen
    assert filtered.read_column(1, indices).tolist() == stack_values([text for _, text in chosen]).tolist()
    if chosen:
        batch: Any = filtered.read_batch(indices)
        stacked: Any = stack_samples(chosen)
        assert [column.tolist() for column in batch] == [column.tolist() for column in stacked]
    with pytest.raises(DatasetOutOfBoundsError):
        filtered[len(expected)]
