"""Filters and deduplication: what a predicate is given, what it may answer, which samples are
equal, how much is read.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
from layer_laws import Columns, Samples

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.deduplicated import (
    DeduplicatedDatasetIterator,
    iterator_digests,
)
from data_stack.dataset.iterator.layers.filtered import FilteredDatasetIterator
from data_stack.values.digests import sample_digest


def is_odd(number: int) -> bool:
    return number % 2 == 1


def test_only_the_filtered_column_is_read_in_blocks() -> None:
    source = Columns(np.zeros((50_000, 10)), np.arange(50_000) % 7)

    filtered = FilteredDatasetIterator(source, lambda label: label in {1, 2}, column=1)

    assert {key for key, _ in source.requests} == {1}
    assert sum(length for _, length in source.requests) == 50_000
    assert max(length for _, length in source.requests) <= 1 << 14
    assert filtered.indices.tolist() == [i for i in range(50_000) if i % 7 in {1, 2}]


def test_an_error_of_the_predicate_notes_the_position() -> None:
    source = SequenceDatasetIterator([np.arange(100)])

    with pytest.raises(ZeroDivisionError) as one:
        FilteredDatasetIterator(source, lambda number: 1 / (number - 57), column=0)
    with pytest.raises(KeyError) as many:
        FilteredDatasetIterator(source, lambda numbers: {"a": 1}["b"], column=0, batched=True)

    if sys.version_info >= (3, 11):
        assert "position 57" in one.value.__notes__[0]
        assert "position 0" in many.value.__notes__[0]


def test_a_pickle_carries_the_positions_and_reads_nothing() -> None:
    source = Samples(list(range(20)))
    filtered = FilteredDatasetIterator(source, is_odd)
    n_read = source.n_read

    copy = pickle.loads(pickle.dumps(filtered))

    assert copy.underlying_iterators[0].n_read == n_read
    assert list(copy) == list(range(1, 20, 2))
    assert copy._arguments() == {"predicate": is_odd, "column": None, "batched": False}


def test_a_recipe_keeps_the_columns_as_they_were_given() -> None:
    columns: list[int | str] = [0]
    source = SequenceDatasetIterator([[1, 2, 2], [3, 4, 5]])
    filtered = source.filter(is_odd, column=columns)
    deduplicated = source.deduplicate(columns)
    fingerprints = [filtered.fingerprint(), deduplicated.fingerprint()]

    columns.append(1)

    assert [filtered.fingerprint(), deduplicated.fingerprint()] == fingerprints


def test_the_first_of_equal_samples_stays() -> None:
    samples = [(1, "a"), (2, "a"), (1, "a"), (1, "b"), (2, "a"), (1, "a")]

    iterator = DeduplicatedDatasetIterator(Samples(samples))

    assert list(iterator) == [(1, "a"), (2, "a"), (1, "b")]
    assert iterator.indices.tolist() == [0, 1, 3]


def test_digests_of_an_iterator_are_those_of_its_samples() -> None:
    samples = [(np.arange(i % 4), str(i), i / 2) for i in range(50)]

    whole, some = iterator_digests(Samples(samples)), iterator_digests(Samples(samples), [2, 0])

    assert [digest.tobytes() for digest in whole] == [sample_digest(sample) for sample in samples]
    assert [digest.tobytes() for digest in some] == [sample_digest((z, x)) for x, _, z in samples]


_ATOMS: list[Any] = [
    ["a", "b", "a", "c", "b"],
    [b"a", b"b", b"a", b"", b""],
    [3, 1, 3, 2**70, 1],
    [True, 1, 0, False, 2],
    ["1", 1, b"1", None, "1"],
    ["a", None, "a", None, "b"],
    ["a", 1.0, "a", 1, float("nan"), float("nan")],
    [(1, 2), (1, 2), (2, 1)],
]


@pytest.mark.parametrize("values", _ATOMS, ids=repr)
@pytest.mark.parametrize("n_copies", [1, 7_000])
def test_the_first_of_equal_values_stays_whatever_their_type(
    values: list[Any], n_copies: int
) -> None:
    column = values * n_copies
    iterator = SequenceDatasetIterator([column, list(range(len(column)))]).as_dict("v", "n")

    found = iterator.deduplicate("v").read_column("n").tolist()

    digests = [sample_digest((value,)) for value in values]
    assert found == [
        number for number, digest in enumerate(digests) if digest not in digests[:number]
    ]
    assert len(iterator.unique("v")) == len(found)
