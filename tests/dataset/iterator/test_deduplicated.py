"""Deduplication: which samples are equal, which one stays, and how they are read."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Columns, Samples

from data_stack.dataset.digests import sample_digest
from data_stack.dataset.iterator import InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.iterator.deduplicated import DeduplicatedDatasetIterator, equal_groups, iterator_digests
from data_stack.dataset.meta import DatasetMeta
from data_stack.exception import ConfigError


def kept(samples: Any, by: Any = None) -> list[int]:
    positions: list[int] = DeduplicatedDatasetIterator(samples, by).indices.tolist()
    return positions


def test_the_first_of_equal_samples_stays() -> None:
    samples = [(1, "a"), (2, "a"), (1, "a"), (1, "b"), (2, "a"), (1, "a")]

    iterator = DeduplicatedDatasetIterator(Samples(samples))

    assert list(iterator) == [(1, "a"), (2, "a"), (1, "b")]
    assert iterator.indices.tolist() == [0, 1, 3]


def test_only_the_columns_given_count() -> None:
    samples = [{"x": i % 2, "y": i % 3, "z": i} for i in range(12)]

    assert kept(Samples(samples), "x") == [0, 1]
    assert kept(Samples(samples), ["x", "y"]) == [0, 1, 2, 3, 4, 5]
    assert kept(Samples(samples), ("x",)) == [0, 1]
    assert kept(Samples(samples)) == list(range(12))


def test_numbers_are_equal_by_value_wherever_a_block_ends() -> None:
    mixed: list[Any] = [1, 2, 1.0, 2.5, True, 2.5, float("nan"), None, float("nan"), np.int8(2), "1", b"1", 0.0, -0.0]

    assert kept(Samples([(value,) for value in mixed])) == [0, 1, 3, 6, 7, 10, 11, 12]
    assert kept(Samples([(value,) for value in mixed]), 0) == [0, 1, 3, 6, 7, 10, 11, 12]


def test_arrays_tensors_and_ragged_arrays_are_equal_by_content() -> None:
    values = [
        np.array([1, 2]),
        torch.tensor([1.0, 2.0]),
        [1, 2],
        np.array([[1, 2]]),
        np.array([1, 2, 3]),
        np.array([1.0, 2.0, 3.0]),
    ]

    assert kept(Samples([(value, "x") for value in values])) == [0, 3, 4]
    assert kept(Samples([np.array([1, 2]), torch.tensor([1.0, 2.0]), np.array([2, 1])])) == [0, 2]


def test_samples_of_different_columns_can_be_compared() -> None:
    samples: list[Any] = [{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1.0}, {"a": 1}, (1, 2), (1,), (1, 2)] * 3

    assert kept(Samples(samples)) == [0, 1, 4, 5]


def test_columns_are_read_once_and_in_blocks() -> None:
    source = Columns(np.zeros((50_000, 4)), np.arange(50_000) % 5)

    iterator = DeduplicatedDatasetIterator(source, 1)

    assert {key for key, _ in source.requests} == {1}
    assert sum(length for _, length in source.requests) == 50_000
    assert max(length for _, length in source.requests) <= 1 << 14
    assert iterator.indices.tolist() == [0, 1, 2, 3, 4]


def test_large_samples_are_read_few_at_a_time() -> None:
    source = Columns(np.zeros((40, 1 << 20), dtype=np.uint8))

    DeduplicatedDatasetIterator(source, 0)

    assert max(length for _, length in source.requests) <= 4


@pytest.mark.parametrize("by", [None, 0, [0]])
def test_an_empty_iterator_stays_empty(by: Any) -> None:
    iterator = DeduplicatedDatasetIterator(Samples([]), by)

    assert len(iterator) == 0
    assert iterator.read_batch([]) == ()


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"builtins\.object"):
        kept(Samples([(object(),)]))
    with pytest.raises(ConfigError, match="no column 'x'"):
        kept(Samples([{"y": 1}]), "x")
    with pytest.raises(ConfigError, match="at least one column"):
        kept(Samples([(1,)]), [])


def test_a_pickle_carries_the_positions_and_reads_nothing() -> None:
    source = Samples([(i % 3,) for i in range(9)])
    iterator = DeduplicatedDatasetIterator(source)
    n_read = source.n_read

    copy = pickle.loads(pickle.dumps(iterator))

    assert copy.underlying_iterators[0].n_read == n_read
    assert list(copy) == [(0,), (1,), (2,)]
    assert copy._arguments() == {"by": None}


def test_deduplicating_keeps_the_meta_and_rebuilds_itself() -> None:
    source = InformedDatasetIterator(SequenceDatasetIterator([[1, 1, 2], ["a", "b", "c"]]), DatasetMeta(dataset_name="numbers"))

    iterator: Any = source.deduplicate(0)

    rebuilt = DeduplicatedDatasetIterator._rebuilt([source], DeduplicatedDatasetIterator(source, 0)._arguments())
    assert list(iterator) == list(rebuilt) == [(1, "a"), (2, "c")]
    assert iterator.dataset_meta.dataset_name == "numbers"


def test_digests_of_an_iterator_are_those_of_its_samples() -> None:
    samples = [(np.arange(i % 4), str(i), i / 2) for i in range(50)]

    whole, some = iterator_digests(Samples(samples)), iterator_digests(Samples(samples), [2, 0])

    assert [digest.tobytes() for digest in whole] == [sample_digest(sample) for sample in samples]
    assert [digest.tobytes() for digest in some] == [sample_digest((z, x)) for x, _, z in samples]


@given(labels=st.lists(st.integers(0, 5), max_size=40))
def test_equal_digests_are_numbered_by_their_first_appearance(labels: list[int]) -> None:
    digests = np.array([list(sample_digest(label)) for label in labels], dtype=np.uint8).reshape(-1, 16)

    first, number = equal_groups(digests)

    seen = list(dict.fromkeys(labels))
    assert first.tolist() == [labels.index(label) for label in seen]
    assert number.tolist() == [seen.index(label) for label in labels]


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), max_size=30), by=st.sampled_from([None, 0, [1, 0]]))
def test_deduplicating_a_view_gives_what_the_same_gives_with_lists(rows: list[tuple[int, str]], by: Any) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], []]
    backwards = rows[::-1]
    keys = [row[0] if by == 0 else row for row in backwards]
    expected = [row for i, row in enumerate(backwards) if keys[i] not in keys[:i]]

    iterator = DeduplicatedDatasetIterator(SequenceDatasetIterator(columns)[::-1], by)

    assert list(iterator) == expected == [iterator[i] for i in range(len(iterator))]
    assert iterator.__getitems__(range(len(expected))) == expected
    assert iterator.read_column(1).tolist() == [row[1] for row in expected]
