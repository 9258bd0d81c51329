"""Datasets in the binary files of CIFAR: records of labels and three planes of 32 × 32 bytes, in a tar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import PreparedResources, Resources
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.arrays import ArraysFactory, read_rows


class PlanesFactory(ArraysFactory):
    """Samples ``(image, label, tag)``: uint8 of shape ``(32, 32, 3)`` and an int; see the dataset for the tag.

    Attributes:
        folder: folder in the archive.
        files: files of each split, in order, with equal numbers of samples.
        bytes_before: columns of the bytes before the planes of an image.
    """

    folder: ClassVar[str]
    files: ClassVar[Mapping[str, Sequence[str]]]
    bytes_before: ClassVar[Sequence[str]] = ("label",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store images block by block as (height, width, channels), and labels as int64."""
        with raw["raw/archive.tar.gz"] as resource, open_archive(resource) as archive:
            for split in prepared.steps(self.splits):
                source, labels = f"{self.folder}/{self.files[split][-1]}", list[npt.NDArray[Any]]()
                self.write(prepared, split, "image", self._images(archive, split, labels), source)
                for column, values in zip(self.bytes_before, np.concatenate(labels).T, strict=True):
                    self.write(prepared, split, column, [values], source)

    def _images(
        self, archive: Archive, split: str, labels: list[npt.NDArray[Any]]
    ) -> Iterator[npt.NDArray[Any]]:
        """Iterate over blocks of images, and append the bytes before them to ``labels``."""
        n_labels, n_records = (
            len(self.bytes_before),
            self.n_samples[split] // len(self.files[split]),
        )
        for file in self.files[split]:
            name = f"{self.folder}/{file}"
            with archive.open(name) as stream:
                for block in read_rows(stream, name, (n_records, n_labels + 3 * 32 * 32), np.uint8):
                    labels.append(block[:, :n_labels].astype(np.int64))
                    yield block[:, n_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
