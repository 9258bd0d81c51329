"""Columns chosen, renamed, named, unnamed, or put side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from layer_laws import Samples

from data_stack.dataset.iterator import InformedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ConfigError

META = DatasetMeta(
    IteratorMeta(0, 1, 2), "id", "digits", "train", "label", ("zero", "one"), ("x", "y")
)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda it: it.select(1, 0, 2), (1, 0, 2)),
        (lambda it: it.select(2, 0), (1, "target", 0)),
        (lambda it: it.select(-1, -2), ("sample", 1, 0)),
        (lambda it: it.as_tuple(1), ("sample", 0, "tag")),
        (lambda it: it.as_tuple(), (0, 1, 2)),
        (lambda it: it.as_dict("image", "label", "tag"), ("image", "label", "tag")),
        (
            lambda it: it.as_dict("image", "label", "tag").rename({"label": "y"}),
            ("image", "y", "tag"),
        ),
        (
            lambda it: it.as_dict("image", "label", "tag").select("label", "image"),
            ("image", "label", "tag"),
        ),
        (lambda it: it.as_dict("image", "label", "tag").as_tuple("label", "image"), (1, 0, "tag")),
        (
            lambda it: it.as_dict("image", "label", "tag").select("label").as_tuple(),
            ("image", 0, "tag"),
        ),
    ],
)
def test_the_meta_follows_the_columns(
    make: Callable[[Any], Any], expected: tuple[Any, Any, Any]
) -> None:
    meta = make(InformedDatasetIterator(Samples([(10, 1, 2)]), META)).dataset_meta

    assert (meta.sample_pos, meta.target_pos, meta.tag_pos) == expected


def test_the_meta_keeps_what_belongs_to_chosen_columns() -> None:
    informed: Any = InformedDatasetIterator(Samples([(10, 1, 2)]), META)

    images, labels = informed.select(0, 2), informed.select(1)

    assert (images.dataset_meta.target_kind, images.dataset_meta.class_names) == (None, None)
    assert images.dataset_meta.feature_names == ("x", "y")
    assert (labels.dataset_meta.class_names, labels.dataset_meta.feature_names) == (
        ("zero", "one"),
        None,
    )
    assert labels.dataset_meta.provenance == ("fields",)
    with pytest.raises(ConfigError, match="no column 'target': they have the columns 0 to 1"):
        images.read_column(images.dataset_meta.target_pos)


def test_a_zip_has_the_meta_of_its_first_iterator() -> None:
    meta = DatasetMeta(IteratorMeta(0, -1, "tag"), "id", "digits", "train", "label", ("a", "b"))
    informed: Any = InformedDatasetIterator(Samples([(1, 2)]), meta)

    zipped: Any = informed.zip(Samples([3]))
    empty: Any = informed[:0].zip(Samples([]))

    assert zipped.dataset_meta == replace(
        meta, iterator_meta=IteratorMeta(0, 1, "tag"), provenance=("zipped",)
    )
    assert zipped.read_column(zipped.dataset_meta.target_pos).tolist() == [2]
    assert empty.dataset_meta.target_pos == -1
