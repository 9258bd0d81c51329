"""The MNIST dataset: where its files are, and how they become samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition

if TYPE_CHECKING:
    from data_stack.mnist.iterator import MNISTIterator

_FIRST_SOURCE: Final = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_MIRROR: Final = "https://storage.googleapis.com/cvdf-datasets/mnist/"


def _define_source(
    identifier: str, *, file: str, size: int, md5_sum: str, sha256: str
) -> ResourceDefinition:
    """Return the definition of a file that lies in both places."""
    return ResourceDefinition(
        identifier,
        _FIRST_SOURCE + file,
        md5_sum=md5_sum,
        sha256=sha256,
        size=size,
        mirrors=(_MIRROR + file,),
    )


class MNISTFactory(DatasetFactory):
    """Handwritten digits, 60,000 for training and 10,000 for testing, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a float32 tensor of shape ``(28, 28)`` in [0, 1], and the
    digit as an int, twice. A store that the original DataStack prepared needs no new preparation.
    """

    card = DatasetCard(
        name="mnist",
        version="1.0.0",
        license="CC-BY-SA-3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        citation=(
            "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to "
            "document recognition. Proceedings of the IEEE 86(11), 1998. "
            "https://doi.org/10.1109/5.726791"
        ),
        keeps_versions=False,
    )
    # Images and labels of each split, in the order of _definitions_by_split().
    # A ClassVar of the base class, which resource_definitions sets on instances.
    sources: Sequence[ResourceDefinition] = (  # type: ignore[misc]
        _define_source(
            "raw/samples_train.gz",
            file="train-images-idx3-ubyte.gz",
            size=9912422,
            md5_sum="f68b3c2dcbeaaa9fbdd348bbdeb94873",
            sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _define_source(
            "raw/labels_train.gz",
            file="train-labels-idx1-ubyte.gz",
            size=28881,
            md5_sum="d53e105ee54ea40749a09fcbcd1e9432",
            sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _define_source(
            "raw/samples_test.gz",
            file="t10k-images-idx3-ubyte.gz",
            size=1648877,
            md5_sum="9fb629c4189551a2d022fa330f9573f3",
            sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _define_source(
            "raw/targets.gz",
            file="t10k-labels-idx1-ubyte.gz",
            size=4542,
            md5_sum="ec29112dd5afa0611ce80d1b7f02629c",
            sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
    splits = ("train", "test")
    columns = ("image", "label", "tag")
    prepared_resources = (
        "preprocessed/train/samples.pt",
        "preprocessed/train/targets.pt",
        "preprocessed/test/samples.pt",
        "preprocessed/test/targets.pt",
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the IDX files of each split into tensors."""
        # Here and in open(), so that the dataset can be listed and described without torch.
        from data_stack.mnist.preprocessor import write_samples, write_targets

        definitions = self._definitions_by_split()
        for split in prepared.steps(self.splits):
            images, labels = definitions[split]
            with raw[images.identifier] as resource:
                with prepared.create(f"preprocessed/{split}/samples.pt") as file:
                    n_samples = write_samples(resource, file)
            with raw[labels.identifier] as resource:
                with prepared.create(f"preprocessed/{split}/targets.pt") as file:
                    write_targets(resource, file, n_samples)

    def open(self, split: str, prepared: Resources) -> MNISTIterator:
        """Return the images and digits of one split, read into memory."""
        from data_stack.mnist.iterator import MNISTIterator

        samples = prepared[f"preprocessed/{split}/samples.pt"]
        targets = prepared[f"preprocessed/{split}/targets.pt"]
        return MNISTIterator(samples, targets)

    def _definitions_by_split(
        self,
    ) -> dict[str, tuple[ResourceDefinition, ResourceDefinition]]:
        """Return the definitions of the images and of the labels of each split."""
        train_images, train_labels, test_images, test_labels = self.sources
        return {"train": (train_images, train_labels), "test": (test_images, test_labels)}

    # ------------------------------------------------------------------ as the original had it

    raw_path = "mnist/raw/"
    preprocessed_path = "mnist/preprocessed/"

    @property
    def resource_definitions(self) -> dict[str, list[ResourceDefinition]]:
        """For each split the definitions of its images and labels, by identifiers in the store.

        Assign another such dict to have the files from elsewhere; changing the one that was
        returned has no effect.
        """
        definitions_in_store = {}
        for split, definitions in self._definitions_by_split().items():
            definitions_in_store[split] = [
                replace(definition, identifier=f"{self.card.name}/{definition.identifier}")
                for definition in definitions
            ]
        return definitions_in_store

    @resource_definitions.setter
    def resource_definitions(self, definitions: Mapping[str, Sequence[ResourceDefinition]]) -> None:
        sources = []
        for split in self.splits:
            for definition in definitions[split]:
                identifier = PurePosixPath(definition.identifier).relative_to(self.card.name)
                sources.append(replace(definition, identifier=str(identifier)))
        self.sources = tuple(sources)

    def check_exists(self) -> bool:
        """Return whether all tensors are in the store, so that nothing will be retrieved."""
        if self.is_ready():
            return True
        # The original DataStack writes no manifest.
        stored = self.storage_connector.has_resource
        if stored(f"{self.card.name}/manifest.json"):
            return False
        return all(stored(f"{self.card.name}/{name}") for name in self.prepared_resources)

    def _get_resource_id(self, data_type: str, split: str, element: str) -> str:
        return f"{self.card.name}/{data_type}/{split}/{element}"
