"""A label means the same class in a dataset's ``class_names`` and in each of its splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from data_stack import DatasetCard, DatasetFactory, IteratorMeta, PreparedResources, Resources
from data_stack.codecs import codec_of
from data_stack.dataset.class_lists import check_class_numbers
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, PreparationError
from data_stack.formats import ImageFolderIterator
from data_stack.io.storage_connectors import InMemoryStorageConnector


class SignsFactory(DatasetFactory):
    """Pictures in a folder for each split and class."""

    card = DatasetCard(name="signs", version="1.0.0")
    splits = ("train", "test")
    iterator_meta = IteratorMeta(sample_pos="image", target_pos="label", tag_pos="path")
    #: The class folders of each split; each has a picture.
    folders: ClassVar[Mapping[str, Sequence[str]]] = {
        "train": ("a", "b", "c"),
        "test": ("a", "b", "c"),
    }
    #: What ``open`` passes to the iterator.
    numbered_as: Sequence[str] | None = None

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        png = codec_of("png").encode(np.zeros((2, 2, 3), np.uint8))
        for split, class_folders in self.folders.items():
            for class_folder in class_folders:
                with prepared.create(f"{split}/{class_folder}/0.png") as file:
                    file.write(png)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return ImageFolderIterator(prepared, prefix=split, class_names=self.numbered_as)


def test_class_names_in_another_order_than_the_labels_are_refused() -> None:
    class Renumbered(SignsFactory):
        class_names = ("c", "b", "a")

    with pytest.raises(
        PreparationError,
        match=r"class 'a' has label 2 in class_names of the dataset, but label 0 in split 'train'; "
        r".*class_names=self.class_names",
    ):
        Renumbered(InMemoryStorageConnector()).prepare(progress=False)


def test_splits_that_number_a_class_differently_are_refused() -> None:
    class WithoutB(SignsFactory):
        folders: ClassVar = {"train": ("a", "b", "c"), "test": ("a", "c")}

    with pytest.raises(
        PreparationError,
        match="class 'c' has label 2 in split 'train', but label 1 in split 'test'",
    ):
        WithoutB(InMemoryStorageConnector()).prepare(progress=False)


@pytest.mark.parametrize(
    ("names", "numbered_as"),
    [
        (("c", "b", "a"), ("c", "b", "a")),
        (("cat", "bird", "ape"), None),  # other names for the same numbers
        (("a", "b", "c", "d"), None),
        (None, None),
    ],
)
def test_one_numbering_is_prepared(
    names: Sequence[str] | None, numbered_as: Sequence[str] | None
) -> None:
    class Named(SignsFactory):
        class_names = names

    Named.numbered_as = numbered_as
    factory = Named(InMemoryStorageConnector())

    factory.prepare(progress=False)

    iterator, _ = factory.get_dataset_iterator({"split": "test"})
    labels: dict[str, Any] = {sample["class"]: sample["label"] for sample in iterator}
    folders = numbered_as or ("a", "b", "c")
    assert labels == {name: number for number, name in enumerate(folders)}


def test_lists_agree_if_a_class_has_one_number() -> None:
    check_class_numbers({"x": ("a", "b"), "y": ("a",), "z": (), "w": ("other", "b")})

    with pytest.raises(ConfigError, match="class 'b' has label 1 in x, but label 0 in y"):
        check_class_numbers({"x": ("a", "b"), "y": ("b",)})
