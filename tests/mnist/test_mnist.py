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
import torch
from idx_files import write_idx
from writing import bytes_of

from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.torch_tensors import save_tensors
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.mnist.factory import MNISTFactory
from data_stack.mnist.preprocessor import MNISTPreprocessor
from data_stack.testing import DatasetContract

SIZES = {"train": 40, "test": 10}
RAW = {"train": ("samples_train.gz", "labels_train.gz"), "test": ("samples_test.gz", "targets.gz")}
PREPARED = [
    f"mnist/preprocessed/{split}/{element}.pt"
    for split in ("test", "train")
    for element in ("samples", "targets")
]


#: torch's, whose annotation knows only its own files
plain_load: Any = torch.load


def images(split: str) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(SIZES[split]).integers(
        0, 256, (SIZES[split], 28, 28), dtype=np.uint8
    )


def labels(split: str) -> npt.NDArray[np.uint8]:
    return (np.arange(SIZES[split]) * 7 % 10).astype(np.uint8)


class TestMNIST(DatasetContract):
    factory = MNISTFactory
    n_samples: ClassVar[dict[str, int]] = SIZES

    def make_source(self, identifier: str) -> bytes:
        split = "train" if "train" in identifier else "test"
        return gzip.compress(
            bytes_of(write_idx, images(split) if "samples" in identifier else labels(split)),
            mtime=0,
        )


@pytest.fixture
def factory(store: FileStorageConnector, tmp_path: Path) -> MNISTFactory:
    """Its files are in a folder, as a mirror has them."""
    factory, definitions = MNISTFactory(store), {}
    for split, names in RAW.items():
        files = {name: TestMNIST().make_source(name) for name in names}
        definitions[split] = [
            ResourceDefinition(
                f"mnist/raw/{name}", (tmp_path / name).as_uri(), hashlib.md5(data).hexdigest()
            )
            for name, data in files.items()
            if (tmp_path / name).write_bytes(data)
        ]
    factory.resource_definitions = definitions
    return factory


def as_the_original(split: str) -> torch.Tensor:
    """torchvision's ToTensor of each image."""
    return torch.from_numpy(images(split)).to(torch.float32).div(255)


def test_samples_are_those_of_the_original(factory: MNISTFactory) -> None:
    for split in ("train", "test"):
        iterator, meta = factory.get_dataset_iterator({"split": split})

        assert meta == IteratorMeta(sample_pos=0, target_pos=1, tag_pos=2)
        assert len(iterator) == SIZES[split]
        for i, (image, target, tag) in enumerate(iterator):
            assert (image.dtype, image.shape) == (torch.float32, (28, 28))
            assert torch.equal(image, as_the_original(split)[i])
            assert (type(target), target, tag) == (int, labels(split)[i], labels(split)[i])


def test_the_store_has_the_layout_of_the_original(
    factory: MNISTFactory, store: FileStorageConnector
) -> None:
    assert not factory.check_exists()
    factory.prepare()

    assert factory.check_exists()
    assert (factory.raw_path, factory.preprocessed_path) == ("mnist/raw/", "mnist/preprocessed/")
    assert (
        factory._get_resource_id("preprocessed", "train", "samples.pt")
        == "mnist/preprocessed/train/samples.pt"
    )
    stored = set(store.list_resources())
    assert stored >= {*PREPARED, *(f"mnist/raw/{name}" for names in RAW.values() for name in names)}
    tensors = {name: plain_load(store.get_resource(name)) for name in PREPARED}
    assert {
        (tensor.dtype, tensor.dim()) for name, tensor in tensors.items() if "samples" in name
    } == {(torch.float32, 3)}
    assert {
        (tensor.dtype, tensor.dim()) for name, tensor in tensors.items() if "targets" in name
    } == {(torch.int64, 1)}


def test_the_published_definitions_name_what_the_original_stored() -> None:
    found = MNISTFactory(InMemoryStorageConnector()).resource_definitions

    assert {
        split: [definition.identifier for definition in pair] for split, pair in found.items()
    } == {split: [f"mnist/raw/{name}" for name in names] for split, names in RAW.items()}
    for definition in (definition for pair in found.values() for definition in pair):
        assert all(
            re.fullmatch(r"https://[^ ]+/mnist/[a-z0-9-]+-ubyte\.gz", source)
            for source in definition.sources
        )
        assert None not in (definition.md5_sum, definition.sha256, definition.size)


@pytest.fixture
def of_the_original(store: FileStorageConnector) -> FileStorageConnector:
    """A store that the original prepared: no manifest, and tensors by torch.save."""
    for split in SIZES:
        for element, tensor in (
            ("samples", as_the_original(split)),
            ("targets", torch.from_numpy(labels(split)).long()),
        ):
            with store.create(f"mnist/preprocessed/{split}/{element}.pt") as file:
                save_tensors(file, tensor)
    return store


def test_a_store_of_the_original_is_used_as_it_is(
    of_the_original: FileStorageConnector, tmp_path: Path
) -> None:
    factory = MNISTFactory(of_the_original)
    factory.resource_definitions = {  # nothing could be fetched
        split: [
            ResourceDefinition(f"mnist/raw/{name}", str(tmp_path / "nowhere")) for name in names
        ]
        for split, names in RAW.items()
    }
    assert factory.check_exists()

    iterator, _ = factory.get_dataset_iterator({"split": "test"})

    assert torch.equal(torch.stack([image for image, _, _ in iterator]), as_the_original("test"))
    assert not any(name.startswith("mnist/raw/") for name in of_the_original.list_resources())


def test_exchanged_files_are_refused_and_nothing_is_stored() -> None:
    store = InMemoryStorageConnector()
    for name in RAW["train"]:
        store.set_resource(name, TestMNIST().make_source(name))

    with pytest.raises(DatasetFileCorruptError, match="images are uint8"):
        MNISTPreprocessor(store).preprocess("labels_train.gz", "samples_train.gz", "s.pt", "t.pt")

    assert not store.has_resource("s.pt")
