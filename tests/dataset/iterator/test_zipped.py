"""The columns of several iterators side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from layer_laws import Samples

from data_stack.dataset.iterator import InformedDatasetIterator
from data_stack.dataset.iterator.layers.zipped import ZippedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError


def test_iterators_of_unequal_lengths_are_refused_with_their_lengths() -> None:
    with pytest.raises(ConfigError, match=r"\[3, 3, 2\]"):
        Samples([1, 2, 3]).zip(Samples([1, 2, 3]), Samples([1, 2]))
    with pytest.raises(ConfigError, match="at least one iterator"):
        ZippedDatasetIterator([])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[{"a": 1}], [{"b": 1}], [{"a": 2}]], "iterators 0 and 2 both have a column 'a'"),
        ([[(1, 2)], [5], [{"a": 1}]], "iterator 0"),
        ([[{"a": 1}], [5]], "iterator 1"),
    ],
)
def test_samples_that_do_not_go_together_are_refused_by_the_numbers_of_their_iterators(parts: list[Any], message: str) -> None:
    zipped = ZippedDatasetIterator([Samples(part) for part in parts])

    reads: list[Callable[[], Any]] = [
        lambda: zipped[0],
        lambda: list(zipped),
        lambda: zipped.__getitems__([0]),
        lambda: zipped.read_batch([0]),
        lambda: zipped.read_batch([]),
        lambda: zipped.read_column("a"),
    ]
    for read in reads:
        with pytest.raises(ConfigError, match=message):
            read()


def test_the_meta_is_that_of_the_first_iterator_at_the_same_columns() -> None:
    meta = DatasetMeta(IteratorMeta(0, -1, "tag"), "id", "digits", "train", "label", ("a", "b"))
    informed: Any = InformedDatasetIterator(Samples([(1, 2)]), meta)

    zipped: Any = informed.zip(Samples([3]))
    empty: Any = informed[:0].zip(Samples([]))

    assert zipped.dataset_meta == replace(meta, iterator_meta=IteratorMeta(0, 1, "tag"), provenance=("zipped",))
    assert zipped.read_column(zipped.dataset_meta.target_pos).tolist() == [2]
    assert empty.dataset_meta.target_pos == -1
