"""Metas are values, and derive from each other without growing."""

from __future__ import annotations

import pickle
from typing import Any

from data_stack.dataset.meta import (
    DatasetMeta,
    DatasetMetaIF,
    IdentifiyingInfoIF,
    IteratorMeta,
    MetaFactory,
)

TRAIN = MetaFactory.get_dataset_meta(
    "a", "mnist", "train", MetaFactory.get_iterator_meta(sample_pos=2, target_pos=0, tag_pos=1)
)


def test_equal_metas_are_equal_and_say_what_they_are() -> None:
    other = DatasetMeta(IteratorMeta(2, 0, 1), "a", "mnist", "train")

    assert other == TRAIN
    assert hash(other) == hash(TRAIN)
    assert pickle.loads(pickle.dumps(TRAIN)) == TRAIN
    assert "mnist" in repr(TRAIN)
    assert isinstance(TRAIN, (DatasetMetaIF, IdentifiyingInfoIF))


def test_what_is_left_out_is_inherited_and_none_clears() -> None:
    derived = MetaFactory.get_dataset_meta_from_existing(
        TRAIN, identifier="c", dataset_name="combined", dataset_tag=None
    )

    assert derived == DatasetMeta(IteratorMeta(2, 0, 1), "c", "combined", None)
    assert MetaFactory.get_dataset_meta_from_existing(TRAIN) == TRAIN
    assert MetaFactory.get_dataset_meta_from_existing(TRAIN, dataset_tag="val").identifier == "a"
    assert MetaFactory.get_dataset_meta_from_existing(TRAIN, "b", "c", "d") == DatasetMeta(
        IteratorMeta(2, 0, 1), "b", "c", "d"
    )


def test_metas_of_other_classes_are_copied_by_content() -> None:
    class ClientMeta(DatasetMetaIF):
        identifier = "x"
        dataset_name = "y"
        dataset_tag: Any = None
        sample_pos, target_pos, tag_pos = 3, 4, 5

    assert MetaFactory.copy_dataset_meta(ClientMeta()) == DatasetMeta(
        IteratorMeta(3, 4, 5), "x", "y", None
    )
    assert (
        MetaFactory.get_dataset_meta_from_existing(ClientMeta(), dataset_tag="t").dataset_tag == "t"
    )
