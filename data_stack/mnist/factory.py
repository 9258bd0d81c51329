"""The MNIST dataset: where its files are, and how they become samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition

if TYPE_CHECKING:
    from data_stack.mnist.iterator import MNISTIterator

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _source(identifier: str, file: str, size: int, md5_sum: str, sha256: str) -> ResourceDefinition:
    first, *others = (mirror + file for mirror in _MIRRORS)
    return ResourceDefinition(identifier, first, md5_sum, sha256, size, tuple(others))


class MNISTFactory(DatasetFactory):
    """Handwritten digits, 60,000 for training and 10,000 for testing, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a float32 tensor of shape ``(28, 28)`` in [0, 1], and twice the digit as an int.
    A store that the original DataStack prepared is used as it is.
    """

    card = DatasetCard(
        name="mnist",
        version="1.0.0",
        license="CC-BY-SA-3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        citation=(
            "Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition. "
            "Proceedings of the IEEE 86(11), 1998. https://doi.org/10.1109/5.726791"
        ),
        keeps_versions=False,
    )
    sources: Sequence[ResourceDefinition] = (  # type: ignore[misc]  # a ClassVar there; resource_definitions sets it on instances
        _source(
            "raw/samples_train.gz",
            "train-images-idx3-ubyte.gz",
            9912422,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _source(
            "raw/labels_train.gz",
            "train-labels-idx1-ubyte.gz",
            28881,
            "d53e105ee54ea40749a09fcbcd1e9432",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _source(
            "raw/samples_test.gz",
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "9fb629c4189551a2d022fa330f9573f3",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _source(
            "raw/targets.gz",
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "ec29112dd5afa0611ce80d1b7f02629c",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
    splits = ("train", "test")
    columns = ("image", "label", "tag")
    prepared_resources = tuple(
        f"preprocessed/{split}/{element}.pt"
        for split in ("train", "test")
        for element in ("samples", "targets")
    )

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Turn the IDX files of each split into tensors."""
        # Here and in open(), so that the dataset can be listed and described where torch is not installed.
        from data_stack.mnist.preprocessor import write_samples, write_targets

        names = dict(zip(self.splits, _pairs(self.sources), strict=True))
        for split in prepared.steps(self.splits):
            samples, targets = (definition.identifier for definition in names[split])
            with (
                raw[samples] as resource,
                prepared.create(f"preprocessed/{split}/samples.pt") as file,
            ):
                n_samples = write_samples(resource, file)
            with (
                raw[targets] as resource,
                prepared.create(f"preprocessed/{split}/targets.pt") as file,
            ):
                write_targets(resource, file, n_samples)

    def open(self, split: str, prepared: Resources) -> MNISTIterator:
        """The images and digits of one split, read into memory."""
        from data_stack.mnist.iterator import MNISTIterator

        return MNISTIterator(
            prepared[f"preprocessed/{split}/samples.pt"],
            prepared[f"preprocessed/{split}/targets.pt"],
        )

    # ------------------------------------------------------------------ as the original had it

    raw_path = "mnist/raw/"
    preprocessed_path = "mnist/preprocessed/"

    @property
    def resource_definitions(self) -> dict[str, list[ResourceDefinition]]:
        """For each split the definitions of its images and labels, under their identifiers in the store.

        Assign another such dict to have the files from elsewhere; changing the one that was returned has no effect.
        """
        return {
            split: [
                replace(definition, identifier=f"{self.card.name}/{definition.identifier}")
                for definition in pair
            ]
            for split, pair in zip(self.splits, _pairs(self.sources), strict=True)
        }

    @resource_definitions.setter
    def resource_definitions(self, definitions: Mapping[str, Sequence[ResourceDefinition]]) -> None:
        self.sources = tuple(
            replace(
                definition,
                identifier=str(PurePosixPath(definition.identifier).relative_to(self.card.name)),
            )
            for split in self.splits
            for definition in definitions[split]
        )

    def check_exists(self) -> bool:
        """Whether all tensors are in the store, so that nothing will be retrieved."""
        return self.is_ready() or (
            not self.storage_connector.has_resource(f"{self.card.name}/manifest.json")
            and all(
                self.storage_connector.has_resource(f"{self.card.name}/{name}")
                for name in self.prepared_resources
            )
        )

    def _get_resource_id(self, data_type: str, split: str, element: str) -> str:
        return f"{self.card.name}/{data_type}/{split}/{element}"


def _pairs(
    sources: Sequence[ResourceDefinition],
) -> list[tuple[ResourceDefinition, ResourceDefinition]]:
    """Images and labels of each split; they are listed in this order."""
    return list(zip(sources[::2], sources[1::2], strict=True))
