"""The layers through the factories, in the manner of the original: the same as by methods, with the meta that is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.encoders import CategoricalEncoder
from data_stack.dataset.factory import HigherOrderDatasetFactory as Plain
from data_stack.dataset.factory import InformedDatasetFactory as Informed
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.meta import MetaFactory

META = MetaFactory.get_dataset_meta("id", "name", "tag", MetaFactory.get_iterator_meta(0, 1, 1))
SOURCE = SequenceDatasetIterator([np.arange(12) * 10, np.arange(12) % 3])
OTHER = SequenceDatasetIterator([np.arange(12) * 100, np.arange(12) % 2])
ENCODER = CategoricalEncoder("one_hot").fit(SOURCE.read_column(1))


def is_large(value: int) -> bool:
    return value > 40


def negated(sample: Any) -> Any:
    return -sample[0], sample[1]


Case = tuple[DatasetIteratorIF, DatasetIteratorIF, Callable[[], DatasetIteratorIF]]

CASES: dict[str, Case] = {
    "view": (
        Plain.get_dataset_iterator_view(SOURCE, [3, 1]),
        Informed.get_dataset_iterator_view(SOURCE, META, [3, 1]),
        lambda: SOURCE[[3, 1]],
    ),
    "combined": (
        Plain.get_combined_dataset_iterator([SOURCE, OTHER]),
        Informed.get_combined_dataset_iterator([SOURCE, OTHER], META),
        lambda: SOURCE.combine(OTHER),
    ),
    "in memory": (
        Plain.get_in_memory_dataset_iterator(SOURCE),
        Informed.get_in_memory_dataset_iterator(SOURCE, META),
        SOURCE.in_memory,
    ),
    "repeated": (
        Plain.get_repeated_dataset_iterator(SOURCE, 2),
        Informed.get_repeated_dataset_iterator(SOURCE, META, 2),
        lambda: SOURCE.repeat(2),
    ),
    "interleaved": (
        Plain.get_interleaved_dataset_iterator([SOURCE, OTHER], stop="shortest"),
        Informed.get_interleaved_dataset_iterator([SOURCE, OTHER], META, stop="shortest"),
        lambda: SOURCE.interleave(OTHER, stop="shortest"),
    ),
    "mixed": (
        Plain.get_mixed_dataset_iterator([SOURCE, OTHER], [3, 1], 7, n_samples=9),
        Informed.get_mixed_dataset_iterator([SOURCE, OTHER], META, [3, 1], 7, n_samples=9),
        lambda: SOURCE.mix(OTHER, proportions=[3, 1], seed=7, n_samples=9),
    ),
    "resampled": (
        Plain.get_resampled_dataset_iterator(SOURCE, 5, 7),
        Informed.get_resampled_dataset_iterator(SOURCE, META, 5, 7),
        lambda: SOURCE.resample(5, seed=7),
    ),
    "balanced": (
        Plain.get_balanced_dataset_iterator(SOURCE[:7], 1, 7),
        Informed.get_balanced_dataset_iterator(SOURCE[:7], META, 7),
        lambda: SOURCE[:7].balance(seed=7),
    ),
    "filtered": (
        Plain.get_filtered_dataset_iterator(SOURCE, is_large, column=0),
        Informed.get_filtered_dataset_iterator(SOURCE, META, is_large, column=0),
        lambda: SOURCE.filter(is_large, column=0),
    ),
    "sorted": (
        Plain.get_sorted_dataset_iterator(SOURCE, 1, descending=True),
        Informed.get_sorted_dataset_iterator(SOURCE, META, 1, descending=True),
        lambda: SOURCE.sort(1, descending=True),
    ),
    "deduplicated": (
        Plain.get_deduplicated_dataset_iterator(SOURCE, by=1),
        Informed.get_deduplicated_dataset_iterator(SOURCE, META, by=1),
        lambda: SOURCE.deduplicate(1),
    ),
    "windowed": (
        Plain.get_windowed_dataset_iterator(SOURCE, 3, stride=2),
        Informed.get_windowed_dataset_iterator(SOURCE, META, 3, stride=2),
        lambda: SOURCE.windows(3, stride=2),
    ),
    "sharded": (
        Plain.get_sharded_dataset_iterator(SOURCE, 1, 5, uneven="pad"),
        Informed.get_sharded_dataset_iterator(SOURCE, META, 1, 5, uneven="pad"),
        lambda: SOURCE.shard(1, 5, uneven="pad"),
    ),
    "mapped": (
        Plain.get_mapped_dataset_iterator(SOURCE, negated),
        Informed.get_mapped_dataset_iterator(SOURCE, META, negated),
        lambda: SOURCE.map(negated),
    ),
    "selected": (
        Plain.get_selected_dataset_iterator(SOURCE, [1]),
        Informed.get_selected_dataset_iterator(SOURCE, META, [1]),
        lambda: SOURCE.select(1),
    ),
    "zipped": (
        Plain.get_zipped_dataset_iterator([SOURCE, OTHER]),
        Informed.get_zipped_dataset_iterator([SOURCE, OTHER], META),
        lambda: SOURCE.zip(OTHER),
    ),
    "encoded": (
        Plain.get_encoded_dataset_iterator(SOURCE, {1: ENCODER}),
        Informed.get_encoded_dataset_iterator(SOURCE, META, {1: ENCODER}),
        lambda: SOURCE.encode({1: ENCODER}),
    ),
    "cached": (
        Plain.get_cached_dataset_iterator(SOURCE, 1_000),
        Informed.get_cached_dataset_iterator(SOURCE, META, 1_000),
        lambda: SOURCE.cache(1_000),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_factory_makes_what_the_method_makes(case: Case) -> None:
    plain, informed, fluent = case

    expected = fluent()

    for iterator in (plain, informed):
        assert len(iterator) == len(expected) > 0
        assert iterator.fingerprint() == expected.fingerprint()
        for ours, theirs in zip(
            iterator.read_batch(range(len(iterator))), expected.read_batch(range(len(expected))), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    assert type(plain) is type(expected)
    assert isinstance(informed, InformedDatasetIterator)
    assert informed.dataset_meta is META


def test_the_factories_shuffle_as_the_original_did_and_the_method_does_not() -> None:
    plain = Plain.get_shuffled_dataset_iterator(SOURCE, 3)
    informed = Informed.get_shuffled_dataset_iterator(SOURCE, META, 3)

    order = [sample[0] // 10 for sample in plain]

    assert order == [sample[0] // 10 for sample in informed] == [1, 7, 10, 0, 6, 11, 4, 5, 2, 8, 9, 3]
    assert order != [sample[0] // 10 for sample in SOURCE.shuffle(3)]


def test_every_factory_method_has_a_twin_that_takes_meta() -> None:
    methods = {name for name in vars(Plain) if name.startswith("get_")}

    assert methods | {"get_dataset_iterator"} == {name for name in vars(Informed) if name.startswith("get_")}


@pytest.mark.parametrize("stack", ["combine", "interleave", "mix"])
def test_iterators_one_after_the_other_have_the_meta_that_none_of_them_contradicts(stack: str) -> None:
    one, other = (
        InformedDatasetIterator(SOURCE, replace(META, class_names=names, feature_names=("x",), target_kind="label"))
        for names in (("a", "b", "c"), ("c", "b", "a"))
    )
    options: dict[str, Any] = {"proportions": [1, 1], "seed": 0} if stack == "mix" else {}

    same = getattr(one, stack)(one, **options).dataset_meta
    different = getattr(one, stack)(other, **options).dataset_meta

    assert (same.class_names, same.feature_names, same.target_kind) == (("a", "b", "c"), ("x",), "label")
    assert (different.class_names, different.feature_names, different.target_kind) == (None, ("x",), "label")
