"""Columns chosen, renamed, named, unnamed, or put side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples

from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator
from data_stack.dataset.iterator.layers.fields import FieldsDatasetIterator
from data_stack.dataset.iterator.layers.zipped import ZippedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError

TUPLES = [(1, 2, 3)]
DICTS = [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("samples", "make"),
    [
        (TUPLES, lambda it: FieldsDatasetIterator(it, [])),
        (TUPLES, lambda it: FieldsDatasetIterator(it, "label")),
        (TUPLES, lambda it: it.select(1, 0, 1)),
        (TUPLES, lambda it: it.rename(["a"])),
        (TUPLES, lambda it: it.rename({"a": 1})),
        (TUPLES, lambda it: it.as_dict("a", "b", "a")),
        (TUPLES, lambda it: it.select("a")),
        (DICTS, lambda it: it.select("c")),
        (DICTS, lambda it: it.as_tuple("a", "x")),
        (DICTS, lambda it: it.rename({"x": "y"})),
        (DICTS, lambda it: it.rename({"a": "b"})),
        ([5], lambda it: it.select("a")),
    ],
)
def test_names_and_columns_that_cannot_be_meant_are_refused_at_once(samples: list[Any], make: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigError):
        make(Samples(samples))


@pytest.mark.parametrize(
    ("samples", "make"),
    [
        (TUPLES, lambda it: it.select(3)),
        (TUPLES, lambda it: it.select(2, -1)),
        (TUPLES, lambda it: it.as_dict("a", "b")),
        (DICTS, lambda it: it.as_dict("x", "y")),
        (["text"], lambda it: it.as_tuple()),
        ([np.ones(3)], lambda it: it.as_dict("a", "b", "c")),
        ([(1, 2), {"a": 1}], lambda it: it.as_tuple()),
    ],
)
def test_columns_that_the_samples_lack_are_refused_when_a_sample_is_read(
    samples: list[Any], make: Callable[[Any], DatasetIteratorIF]
) -> None:
    iterator = make(Samples(samples))

    for read in (list, lambda it: it.__getitems__(range(len(it))), lambda it: it.read_batch(range(len(it)))):
        with pytest.raises(ConfigError):
            read(iterator)


META = DatasetMeta(IteratorMeta(0, 1, 2), "id", "digits", "train", "label", ("zero", "one"), ("x", "y"))


def followed(samples: list[Any], meta: DatasetMeta, make: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Where the meta of a layer says the columns are."""
    found: DatasetMeta = make(InformedDatasetIterator(Samples(samples), meta)).dataset_meta
    return found.sample_pos, found.target_pos, found.tag_pos


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda it: it.select(1, 0, 2), (1, 0, 2)),
        (lambda it: it.select(2, 0), (1, "target", 0)),
        (lambda it: it.select(-1, -2), ("sample", 1, 0)),
        (lambda it: it.as_tuple(1), ("sample", 0, "tag")),
        (lambda it: it.as_tuple(), (0, 1, 2)),
        (lambda it: it.as_dict("image", "label", "tag"), ("image", "label", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").rename({"label": "y"}), ("image", "y", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").select("label", "image"), ("image", "label", "tag")),
        (lambda it: it.as_dict("image", "label", "tag").as_tuple("label", "image"), (1, 0, "tag")),
        (lambda it: it.as_dict("image", "label", "tag").select("label").as_tuple(), ("image", 0, "tag")),
    ],
)
def test_the_meta_follows_the_columns(make: Callable[[Any], Any], expected: tuple[Any, Any, Any]) -> None:
    assert followed([(10, 1, 2)], META, make) == expected


def test_what_was_known_of_a_column_goes_with_it_and_asking_for_it_says_what_there_is() -> None:
    informed: Any = InformedDatasetIterator(Samples([(10, 1, 2)]), META)

    images, labels = informed.select(0, 2), informed.select(1)

    assert (images.dataset_meta.target_kind, images.dataset_meta.class_names) == (None, None)
    assert images.dataset_meta.feature_names == ("x", "y")
    assert (labels.dataset_meta.class_names, labels.dataset_meta.feature_names) == (("zero", "one"), None)
    assert labels.dataset_meta.provenance == ("fields",)
    with pytest.raises(ConfigError, match="no column 'target': they have the columns 0 to 1"):
        images.read_column(images.dataset_meta.target_pos)


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
