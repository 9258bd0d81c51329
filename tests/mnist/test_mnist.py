"""MNIST on synthetic IDX files: samples, stored layout, adoption, damage, memory."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from idx_files import write_idx
from torch_or_stand_in import torch
from writing import bytes_of

from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.torch_tensors import save_tensors
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.mnist.factory import MNISTFactory
from data_stack.mnist.preprocessor import MNISTPreprocessor
from data_stack.testing import DatasetContract

#: The number of samples of each split of the synthetic dataset.
SIZES = {"train": 40, "test": 10}

#: The files of the images and of the labels of each split, as the original stored them.
RAW_FILES = {
    "train": ("samples_train.gz", "labels_train.gz"),
    "test": ("samples_test.gz", "targets.gz"),
}

SAMPLE_TENSORS = ("mnist/preprocessed/train/samples.pt", "mnist/preprocessed/test/samples.pt")
TARGET_TENSORS = ("mnist/preprocessed/train/targets.pt", "mnist/preprocessed/test/targets.pt")

#: torch's, whose annotation knows only its own files
plain_load: Any = torch.load


def images(split: str) -> npt.NDArray[np.uint8]:
    """Return the images of a split, shape ``(n, 28, 28)``."""
    generator = np.random.default_rng(SIZES[split])
    return generator.integers(0, 256, (SIZES[split], 28, 28), dtype=np.uint8)


def labels(split: str) -> npt.NDArray[np.uint8]:
    """Return the labels of a split, shape ``(n,)``."""
    return (np.arange(SIZES[split]) * 7 % 10).astype(np.uint8)


def make_raw_file(identifier: str) -> bytes:
    """Return a gzipped IDX file of images or labels, as its name says."""
    split = "train" if "train" in identifier else "test"
    content = images(split) if "samples" in identifier else labels(split)
    return gzip.compress(bytes_of(write_idx, content), mtime=0)


class TestMNIST(DatasetContract):
    factory = MNISTFactory
    n_samples: ClassVar[dict[str, int]] = SIZES

    def make_source(self, identifier: str) -> bytes:
        return make_raw_file(identifier)


@pytest.fixture
def factory(store: FileStorageConnector, tmp_path: Path) -> MNISTFactory:
    """Its files are in a folder, as a mirror has them."""
    definitions = {}
    for split, names in RAW_FILES.items():
        definitions[split] = [define_mirrored_file(tmp_path, name) for name in names]
    factory = MNISTFactory(store)
    factory.resource_definitions = definitions
    return factory


def define_mirrored_file(folder: Path, name: str) -> ResourceDefinition:
    """Write a raw file to a folder, and return its definition."""
    data = make_raw_file(name)
    (folder / name).write_bytes(data)
    md5_sum = hashlib.md5(data).hexdigest()
    return ResourceDefinition(f"mnist/raw/{name}", (folder / name).as_uri(), md5_sum)


def images_of_the_original(split: str) -> torch.Tensor:
    """Return torchvision's ToTensor of each image."""
    return torch.from_numpy(images(split)).to(torch.float32).div(255)


def test_samples_are_those_of_the_original(factory: MNISTFactory) -> None:
    for split in ("train", "test"):
        iterator, meta = factory.get_dataset_iterator({"split": split})

        assert meta == IteratorMeta(sample_pos=0, target_pos=1, tag_pos=2)
        assert len(iterator) == SIZES[split]
        expected_images = images_of_the_original(split)
        for number, (image, target, tag) in enumerate(iterator):
            assert image.dtype == torch.float32
            assert torch.equal(image, expected_images[number])
            assert type(target) is int
            assert target == labels(split)[number]
            assert tag == target


def test_the_store_has_the_layout_of_the_original(
    factory: MNISTFactory, store: FileStorageConnector
) -> None:
    assert not factory.check_exists()
    factory.prepare()

    assert factory.check_exists()
    assert factory.raw_path == "mnist/raw/"
    assert factory.preprocessed_path == "mnist/preprocessed/"
    assert factory._get_resource_id("preprocessed", "train", "samples.pt") == SAMPLE_TENSORS[0]
    stored = set(store.list_resources())
    for names in RAW_FILES.values():
        assert stored >= {f"mnist/raw/{name}" for name in names}
    for name in SAMPLE_TENSORS:
        tensor = plain_load(store.get_resource(name))
        assert (tensor.dtype, tensor.dim()) == (torch.float32, 3)
    for name in TARGET_TENSORS:
        tensor = plain_load(store.get_resource(name))
        assert (tensor.dtype, tensor.dim()) == (torch.int64, 1)


def test_the_published_definitions_name_what_the_original_stored() -> None:
    definitions = MNISTFactory(InMemoryStorageConnector()).resource_definitions

    for split, names in RAW_FILES.items():
        identifiers = [definition.identifier for definition in definitions[split]]
        assert identifiers == [f"mnist/raw/{name}" for name in names]
        for definition in definitions[split]:
            for source in definition.sources:
                assert re.fullmatch(r"https://[^ ]+/mnist/[a-z0-9-]+-ubyte\.gz", source)
            assert None not in (definition.md5_sum, definition.sha256, definition.size)


@pytest.fixture
def store_of_the_original(store: FileStorageConnector) -> FileStorageConnector:
    """A store that the original prepared: no manifest, and tensors by torch.save."""
    for split in SIZES:
        with store.create(f"mnist/preprocessed/{split}/samples.pt") as file:
            save_tensors(file, images_of_the_original(split))
        with store.create(f"mnist/preprocessed/{split}/targets.pt") as file:
            save_tensors(file, torch.from_numpy(labels(split)).long())
    return store


def test_a_store_of_the_original_is_used_as_it_is(
    store_of_the_original: FileStorageConnector, tmp_path: Path
) -> None:
    definitions = {}
    for split, names in RAW_FILES.items():
        # Nothing can be fetched.
        definitions[split] = [
            ResourceDefinition(f"mnist/raw/{name}", str(tmp_path / "nowhere")) for name in names
        ]
    factory = MNISTFactory(store_of_the_original)
    factory.resource_definitions = definitions
    assert factory.check_exists()

    iterator, _ = factory.get_dataset_iterator({"split": "test"})

    found_images = torch.stack([image for image, _, _ in iterator])
    assert torch.equal(found_images, images_of_the_original("test"))
    stored = store_of_the_original.list_resources()
    assert not any(name.startswith("mnist/raw/") for name in stored)


def test_exchanged_files_are_refused_and_nothing_is_stored() -> None:
    store = InMemoryStorageConnector()
    for name in RAW_FILES["train"]:
        store.set_resource(name, make_raw_file(name))

    with pytest.raises(DatasetFileCorruptError, match="images are uint8"):
        MNISTPreprocessor(store).preprocess("labels_train.gz", "samples_train.gz", "s.pt", "t.pt")

    assert not store.has_resource("s.pt")
